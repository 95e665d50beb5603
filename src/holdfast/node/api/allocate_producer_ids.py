"""AllocateProducerIds (67), version 0: a broker wants a block of producer ids."""

from holdfast.core.controller.broker_sessions import allocate_producer_ids
from holdfast.node.api.decided import decided_by

handle_on_controller = decided_by(allocate_producer_ids)
