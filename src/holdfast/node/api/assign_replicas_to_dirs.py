"""AssignReplicasToDirs (73), version 0: a broker says where its replicas lie."""

from holdfast.core.controller.replica_directories import assign_replicas
from holdfast.node.api.decided import decided_by

handle_on_controller = decided_by(assign_replicas)
