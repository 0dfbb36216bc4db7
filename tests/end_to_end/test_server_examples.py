"""The example of Ray Serve LLM, without Ray."""

from __future__ import annotations

import yaml
from _support.paths import REPOSITORY


def test_the_ray_serve_example_fits_its_command() -> None:
    text = (REPOSITORY / "examples" / "ray_serve_llm.yaml").read_text(encoding="utf-8")
    (application,) = yaml.safe_load(text)["applications"]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    (config,) = application["args"]["llm_configs"]
    deployment = config["deployment_config"]
    concurrent = deployment["num_replicas"] * deployment["max_ongoing_requests"]
    assert f"num_concurrent={concurrent}" in text
    assert f"model={config['model_loading_config']['model_id']}," in text
