"""The report of a study: one HTML file with its records and all figures, for offline use."""

from __future__ import annotations

from html import escape

from freezethaw import __version__
from freezethaw.figures import STUDY_FIGURES
from freezethaw.server import study_page
from freezethaw.server.application import STATIC
from freezethaw.server.views import StoreView

SCRIPT = """
const plots = JSON.parse(document.getElementById("figures-data").textContent);
for (const [name, figure] of Object.entries(plots)) {
  delete figure.layout.title;
  Object.assign(figure.layout, {autosize: true, paper_bgcolor: "white", plot_bgcolor: "white"});
  figure.layout.margin = {l: 66, r: 14, t: 34, b: 56};
  Plotly.newPlot("plot-" + name, {...figure, config: {responsive: true, displaylogo: false}});
}
"""


def report_html(url: str, name: str) -> str:
    """The report as HTML."""
    from plotly.offline import get_plotlyjs

    store = StoreView(url)
    try:
        view = store.study(name)
        with view.model_lock:
            _, study = view.read_only()
            drawn = {figure: draw(study) for figure, draw in STUDY_FIGURES.items()}
        body = study_page.static_html(store, view)
    finally:
        store.close()
    plots = "".join(
        f'<figure class="plot wide"><figcaption><h2>{figure.layout.meta["title"]}</h2>'
        f'<p class="soft">{figure.layout.meta["subtitle"]}</p></figcaption><div class="canvas" id="plot-{key}"></div>'
        "</figure>"
        for key, figure in drawn.items()
    )
    data = ",".join(f'"{key}":{figure.to_json()}' for key, figure in drawn.items())
    data = ("{" + data + "}").replace("<", "\\u003c")  # no text can close the script element
    style = (
        (STATIC / "page.css").read_text(encoding="utf-8").replace("@media (prefers-color-scheme: dark)", "@media none")
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)} – freezethaw</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light">'
        f'<link rel="icon" href="data:,"><style>{style}</style></head><body><main>{body}<h2>Figures</h2>'
        f'<div class="figures">{plots}</div><p class="soft">Created by freezethaw {__version__}</p></main>'
        f'<script type="application/json" id="figures-data">{data}</script>'
        f"<script>{get_plotlyjs()}</script><script>{SCRIPT}</script></body></html>"
    )
