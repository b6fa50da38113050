"""Alerts and dashboard: Prometheus takes them, they fire where they should, and they ask for metrics that there are."""

import json
import re
import tempfile
import unittest
import urllib.request

import yaml

import fleet_gateway
import manifests
from fleet_gateway import Gateway
from harness import StackdTest, free_port
from manifests import DEPLOY, MONITORING, documents, helm_template, rendered, run, tool

PREPARE = (fleet_gateway.build_gateway,)
RULES = DEPLOY / "alerts/stackd.rules.yaml"
DASHBOARD = DEPLOY / "grafana/stackd.json"

# Metrics of the kubelet and of kube-state-metrics.
NOT_OURS = {"up", "container_memory_working_set_bytes", "kube_pod_init_container_resource_limits"}


def alerts():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions():
    """Each query of rules and dashboard, by where it is; Grafana's variables replaced by what they stand for."""
    found = {rule["alert"]: rule["expr"] for rule in alerts()}
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        found[f"annotation {annotation['name']}"] = annotation["expr"]
    for name, value in (("$namespace", ".*"), ("$pod", ".*"), ("$__range", "6h"), ("$__rate_interval", "5m")):
        found = {where: expression.replace(name, value) for where, expression in found.items()}
    return found


def metrics_in(expression):
    names = re.findall(r"[a-z_]{4,}(?=[{\[ )]|$)", re.sub(r"\{[^}]*\}|by \([^)]*\)|on \([^)]*\)", "{", expression))
    words = {"histogram_quantile", "increase", "changes", "unless", "offset", "round", "rate"}
    return set(names) - words


class RulesTest(unittest.TestCase):

    def test_prometheus_takes_the_rules(self):
        self.assertIn("SUCCESS", run(tool("promtool"), "check", "rules", RULES).stdout)

    def test_each_alert_fires_where_it_should(self):
        run(tool("promtool"), "test", "rules", DEPLOY / "alerts/stackd.test.yaml")

    def test_each_alert_has_a_test(self):
        fired = {case["alertname"] for test in yaml.safe_load((DEPLOY / "alerts/stackd.test.yaml").read_text())["tests"]
                 for case in test["alert_rule_test"] if case["exp_alerts"]}
        self.assertEqual({rule["alert"] for rule in alerts()}, fired)

    def test_the_unit_tests_notice_a_broken_rule(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = RULES.read_text().replace('trigger="hang"', 'trigger="request"')
            for name, text in (("stackd.rules.yaml", broken),
                               ("stackd.test.yaml", (DEPLOY / "alerts/stackd.test.yaml").read_text())):
                with open(f"{folder}/{name}", "w") as file:
                    file.write(text)
            run(tool("promtool"), "test", "rules", f"{folder}/stackd.test.yaml", ok=False)

    def test_the_chart_gives_the_same_rules(self):
        rule = next(d for d in documents(rendered()["helm/monitoring"]) if d["kind"] == "PrometheusRule")
        self.assertEqual(yaml.safe_load(RULES.read_text()), rule["spec"])
        made = documents(helm_template(manifests.CHART, "-f", manifests.features()["monitoring"],
                                       "--set", "prometheusRule.runbooks=https://wiki.example/x").stdout)
        rule = next(d for d in made if d["kind"] == "PrometheusRule")
        self.assertEqual("https://wiki.example/x/StackdProgramHangs.md",
                         rule["spec"]["groups"][0]["rules"][0]["annotations"]["runbook_url"])
        self.assertEqual(MONITORING, rule["apiVersion"])

    def test_the_chart_gives_the_same_dashboard(self):
        text = next(d for d in documents(rendered()["helm/monitoring"])
                    if d["metadata"]["name"].endswith("-dashboard"))["data"]["stackd.json"]
        self.assertEqual(json.loads(DASHBOARD.read_text()), json.loads(text))


class DashboardTest(unittest.TestCase):

    def test_prometheus_understands_each_query(self):
        rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(expressions().values())]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}, file)
            file.flush()
            self.assertIn(f"{len(rules)} rules found", run(tool("promtool"), "check", "rules", file.name).stdout)

    def test_panels_do_not_overlap_and_are_explained(self):
        taken = set()
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells
            if panel["type"] != "row":
                self.assertTrue(panel["title"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"])


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class MetricsTest(StackdTest):

    def test_each_metric_that_is_asked_for_is_served(self):
        """With the labels that are asked for."""
        port = free_port()
        daemon = self.start_daemon(extra_args=["--metrics-listen", f"127.0.0.1:{port}"])
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)
        daemon.dump(victim.pid)
        gateway_port = free_port()
        gateway = Gateway(self.dir, {"pod-a": (f"127.0.0.1:{daemon.port}", {})}, "--metrics-listen", f"127.0.0.1:{gateway_port}")
        self.addCleanup(gateway.kill)
        gateway.start()
        page = ""
        for one in (port, gateway_port):
            served = urllib.request.urlopen(f"http://127.0.0.1:{one}/metrics", timeout=10).read().decode()
            run(tool("promtool"), "check", "metrics", stdin=served)
            page += served
        served = set(re.findall(r"^([a-z_]+)", page, re.M))
        for where, expression in expressions().items():
            with self.subTest(where):
                self.assertLessEqual(metrics_in(expression) - NOT_OURS, served)
                for name, selector in re.findall(r"([a-z_]+)\{([^}]*)\}", expression):
                    for label, value in re.findall(r'([a-z_]+)="([^"]+)"', selector):
                        if name in served and label not in ("container", "namespace", "pod"):
                            self.assertRegex(page, rf'(?m)^{name}\{{[^}}]*{label}="{value}"')


if __name__ == "__main__":
    unittest.main()
