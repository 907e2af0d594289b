"""One letter as people read it: its body, its stack, why it has its cause."""
