"""Charts over training steps, as SVG that a page colours: the backtest's report and the light page."""
