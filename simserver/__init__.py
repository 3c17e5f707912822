"""A simulated SGLang server with DFlash and DDTree, and eight simulated GPUs; a peer of the product."""
