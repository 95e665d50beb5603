"""The test kit, public: time that jumps, a network and a disk in memory, one seed for all."""
