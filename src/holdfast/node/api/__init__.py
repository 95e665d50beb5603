"""The handlers, one file per API; which there are says holdfast.node.door.api_table."""
