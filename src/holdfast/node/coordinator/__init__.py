"""The room of the group coordinator: what `core.group` decides is performed here."""
