"""A page of one run as tutorials write it: Flask reads the log at each request, and Plotly draws.

Run by the Python of an environment of its own: `python flask_plotly.py LOG PORT`.
"""

import json
import sys
from pathlib import Path

import plotly.graph_objects as go
from flask import Flask

LOG, PORT = Path(sys.argv[1]), int(sys.argv[2])
LIMITS = {
    "critic/score/mean": 0.5,
    "actor/kl_loss": 1.5,
    "actor/ppo_kl": 1.5,
    "actor/entropy": 0.5,
    "actor/pg_loss": 1.5,
    "actor/grad_norm": 1.5,
    "response_length/mean": 1.5,
    "response_length/clip_ratio": 0.1,
}

app = Flask(__name__)


@app.get("/")
def page() -> str:
    records = [json.loads(line) for line in LOG.read_text().splitlines()]
    steps = [record["step"] for record in records]
    parts = [f"<h1>{LOG.stem}</h1><p>step {steps[-1]}</p>"]
    for key, limit in LIMITS.items():
        values = [record["data"][key] for record in records]
        figure = go.Figure(go.Scatter(x=steps, y=values, name=key), layout={"title": {"text": key}})
        figure.add_hline(y=limit, line_dash="dash")
        # The script itself, 5 MB, comes from elsewhere.
        parts.append(figure.to_html(full_html=False, include_plotlyjs="cdn" if len(parts) == 1 else False))
    return "".join(parts)


app.run(port=PORT)
