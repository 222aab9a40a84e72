"""GMM-HMM acoustic models: topology, decision tree, mixtures, alignment and training."""
