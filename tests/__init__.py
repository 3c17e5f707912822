"""Tests of the product, mirroring its folders."""
