"""UnregisterBroker (64), version 0: brokers forward it, the controller decides."""

from holdfast.core.controller.broker_sessions import unregister_broker
from holdfast.node.api.decided import decided_by

handle_on_controller = decided_by(unregister_broker)
