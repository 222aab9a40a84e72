"""The network acoustic model: frame store, bidirectional LSTM, training with adpsgd, scores for decoding."""
