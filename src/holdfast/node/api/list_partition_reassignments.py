"""ListPartitionReassignments (46), version 0: what is being moved, from the controller's image."""

from holdfast.core.controller.reassignment import list_partition_reassignments
from holdfast.node.api.decided import decided_by

handle_on_controller = decided_by(list_partition_reassignments)
