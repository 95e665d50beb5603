"""AlterPartition (56), versions 2-3: a leader proposes another ISR.

Versions: 3 names each member's broker epoch (KIP-903).
"""

from holdfast.core.controller.isr_changes import alter_partition
from holdfast.node.api.decided import decided_by

handle_on_controller = decided_by(alter_partition)
