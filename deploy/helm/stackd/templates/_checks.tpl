{{/* Values that are well-formed one by one and cannot work together: a sentence each, that says what to change. */}}
{{- define "stackd.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is empty: there is no public image of stackd. Make one with deploy/image/build.sh, push it, and set image.repository to where it is." -}}
{{- end -}}
{{- if not (include "stackd.loopback" .) -}}
{{- if not .Values.api.tls.secretName -}}
{{- fail (printf "api.listen is %s, which others can reach: set api.tls.secretName, or listen on 127.0.0.1:7443 and use kubectl port-forward." .Values.api.listen) -}}
{{- end -}}
{{- if not .Values.access -}}
{{- fail (printf "api.listen is %s and access is empty: no client certificate would have a role. Say in access who may do what." .Values.api.listen) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "podMonitor.enabled is true and metrics.enabled is false: there would be nothing to collect. Set both, or none." -}}
{{- end -}}
{{- if and .Values.otlp.dumps (not .Values.otlp.endpoint) -}}
{{- fail "otlp.dumps is set and otlp.endpoint is empty: dumps would be sent nowhere. Set both, or none." -}}
{{- end -}}
{{- if eq (int .Values.health.port) (int .Values.metrics.port) -}}
{{- fail (printf "health.port and metrics.port are both %d: probes must not wait for a scraper. Give them two ports." (int .Values.health.port)) -}}
{{- end -}}
{{- include "stackd.checkMemory" (dict "limit" .Values.resources.memoryLimitMiB "processes" .Values.maxProcesses
    "limitName" "resources.memoryLimitMiB" "processesName" "maxProcesses") -}}
{{- end -}}

{{/* 160 MiB is what the daemon and its worker took for a program with 1.13 GiB of debug data, without its ring. */}}
{{- define "stackd.checkMemory" -}}
{{- $least := add 160 .processes -}}
{{- if lt (int .limit) (int $least) -}}
{{- fail (printf "%s is %d, but %s is %d, and each process has a ring of 1 MiB in the daemon's memory: allow at least %d MiB, or fewer processes." .limitName (int .limit) .processesName (int .processes) (int $least)) -}}
{{- end -}}
{{- end -}}

{{- define "stackd.checkGateway" -}}
{{- if not .Values.gateway.image.repository -}}
{{- fail "gateway.image.repository is empty: there is no public image of stackd-gateway. Make one with deploy/image/build.sh --gateway, push it, and set gateway.image.repository to where it is." -}}
{{- end -}}
{{- if include "stackd.loopback" . -}}
{{- fail (printf "gateway.enabled is true and api.listen is %s, which no gateway reaches: set api.listen to 0.0.0.0:7443, with api.tls.secretName and access." .Values.api.listen) -}}
{{- end -}}
{{- if not .Values.gateway.tls.secretName -}}
{{- fail "gateway.enabled is true and gateway.tls.secretName is empty: callers and daemons would not know the gateway. Name a Secret with tls.crt, tls.key and ca.crt." -}}
{{- end -}}
{{- if not (or .Values.gateway.access .Values.gateway.tokens.enabled) -}}
{{- fail "gateway.enabled is true and gateway.access is empty: no caller would have a role. Say in gateway.access who may ask, or set gateway.tokens.enabled." -}}
{{- end -}}
{{- if and .Values.gateway.tokens.audience (not .Values.gateway.tokens.enabled) -}}
{{- fail "gateway.tokens.audience is set and gateway.tokens.enabled is false: no token would be looked at. Set it to true." -}}
{{- end -}}
{{- $history := .Values.gateway.history -}}
{{- if and (not $history.loki) (or $history.tenant $history.streams $history.tokenSecretName) -}}
{{- fail "gateway.history.loki is empty: say where Loki is, or leave out the rest of gateway.history." -}}
{{- end -}}
{{- if eq (int .Values.gateway.port) (int .Values.gateway.metricsPort) -}}
{{- fail (printf "gateway.port and gateway.metricsPort are both %d: give them two ports." (int .Values.gateway.port)) -}}
{{- end -}}
{{- end -}}

{{- define "stackd.checkInstall" -}}
{{- include "stackd.check" . -}}
{{- if .Values.gateway.enabled -}}
{{- include "stackd.checkGateway" . -}}
{{- end -}}
{{- if .Values.injection.enabled -}}
{{- if semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail (printf "injection.enabled is true, but this cluster is %s: MutatingAdmissionPolicy is there from 1.36. Add the sidecar with deploy/kubernetes/sidecar, or with the templates of this chart (deploy/helm/example-app)." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (include "stackd.settings" .) (not .Values.injection.namespaces) -}}
{{- fail "injection.enabled is true with access or rules, but injection.namespaces is empty: a pod reads them from a ConfigMap in its own namespace. Name the namespaces." -}}
{{- end -}}
{{- if .Values.node.enabled -}}
{{- fail "injection.enabled and node.enabled are both true: injected pods have a daemon of their own, and would not talk to the node's. Choose one." -}}
{{- end -}}
{{- end -}}
{{- if .Values.node.enabled -}}
{{- include "stackd.checkMemory" (dict "limit" .Values.node.memoryLimitMiB "processes" .Values.node.maxProcesses
    "limitName" "node.memoryLimitMiB" "processesName" "node.maxProcesses") -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.appPorts) (not .Values.node.enabled) -}}
{{- fail "networkPolicy.enabled is true and networkPolicy.appPorts is empty: nothing would reach your programs any more. Name their ports." -}}
{{- end -}}
{{- if and (or .Values.podMonitor.enabled .Values.prometheusRule.enabled) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail "podMonitor or prometheusRule is enabled, but this cluster does not know monitoring.coreos.com/v1: install the Prometheus Operator first (helm template: --api-versions monitoring.coreos.com/v1)." -}}
{{- end -}}
{{- end -}}
