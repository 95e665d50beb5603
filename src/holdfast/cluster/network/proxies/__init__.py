"""What stands in for a network where namespaces are denied."""
