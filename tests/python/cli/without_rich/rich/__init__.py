raise ImportError("rich is not here")
