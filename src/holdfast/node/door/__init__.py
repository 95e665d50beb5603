"""What clients meet: sockets, frames, the table of APIs, who may ask, and where requests wait."""
