class NetworkScorer:
    pass
