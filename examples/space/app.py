"""The app as a hosted space: this one file, beside a requirements.txt with manymatch[app,features].

A host of spaces starts it and forwards port 7860. Limits are tighter than on a machine of one's
own, as strangers share it.
"""

from __future__ import annotations

import os

from manymatch.app.page import App, serve
from manymatch.app.session import Limits

LIMITS = Limits(upload_mb=15, photos=12, pair_seconds=60.0, folder_seconds=300.0)

if __name__ == "__main__":
    serve(
        App(limits=LIMITS),
        host=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"),
        port=int(os.environ.get("GRADIO_SERVER_PORT", "7860")),
    )
