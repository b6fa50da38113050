{{- define "stackd.fullname" -}}
{{- contains "stackd" .Release.Name | ternary .Release.Name (printf "%s-stackd" .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "stackd.image" -}}
{{- include "stackd.imageOf" (dict "image" .Values.image "version" .Chart.AppVersion) -}}
{{- end -}}

{{- define "stackd.imageOf" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end -}}
{{- end -}}

{{- define "stackd.labels" -}}
app.kubernetes.io/name: stackd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "stackd.gatewayLabels" -}}
app.kubernetes.io/name: stackd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "stackd.loopback" -}}
{{- $listen := .Values.api.listen -}}
{{- if or (eq $listen "none") (hasPrefix "127." $listen) (hasPrefix "localhost:" $listen) (hasPrefix "[::1]:" $listen) -}}
yes
{{- end -}}
{{- end -}}

{{- define "stackd.settings" -}}
{{- if or .Values.access .Values.rules }}yes{{ end -}}
{{- end -}}

{{- define "stackd.securityContext" -}}
runAsNonRoot: true
runAsUser: 64532
runAsGroup: 64532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The daemon, as it is in a sidecar and on a node. Takes dict "chart" . "maxProcesses" N "memoryLimitMiB" N. */}}
{{- define "stackd.container" -}}
{{- with .chart -}}
name: stackd
image: {{ include "stackd.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --dir=/run/stackd
  - --store=/var/lib/stackd/store.db
  - --store-max-bytes={{ .Values.store.sizeMiB }}MiB
  - --store-max-age={{ .Values.store.maxAge }}
  - --max-processes={{ $.maxProcesses }}
  - --listen={{ .Values.api.listen }}
  {{- with .Values.api.tls.secretName }}
  - --tls-cert=/etc/stackd/tls/tls.crt
  - --tls-key=/etc/stackd/tls/tls.key
  - --tls-client-ca=/etc/stackd/tls/ca.crt
  {{- end }}
  {{- if .Values.access }}
  - --access=/etc/stackd/settings/access.yaml
  {{- end }}
  {{- if .Values.rules }}
  - --rules=/etc/stackd/settings/rules.yaml
  {{- end }}
  - --health-listen=:{{ .Values.health.port }}
  {{- if .Values.metrics.enabled }}
  - --metrics-listen=:{{ .Values.metrics.port }}
  {{- end }}
  {{- with .Values.otlp.endpoint }}
  - --otlp-endpoint={{ . }}
  {{- end }}
  {{- with .Values.otlp.dumps }}
  - --otlp-dumps={{ . }}
  {{- end }}
  {{- range .Values.extraArgs }}
  - {{ . | quote }}
  {{- end }}
env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: POD_UID
    valueFrom:
      fieldRef:
        fieldPath: metadata.uid
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
ports:
  - name: stackd-health
    containerPort: {{ .Values.health.port }}
  {{- if .Values.metrics.enabled }}
  - name: stackd-metrics
    containerPort: {{ .Values.metrics.port }}
  {{- end }}
  {{- if not (include "stackd.loopback" .) }}
  - name: stackd-api
    containerPort: {{ regexFind "[0-9]+$" .Values.api.listen }}
  {{- end }}
{{- if .Values.probes.readiness }}
readinessProbe:
  httpGet:
    port: {{ .Values.health.port }}
    path: /readyz
  periodSeconds: 10
{{- end }}
{{- if .Values.probes.liveness }}
livenessProbe:
  httpGet:
    port: {{ .Values.health.port }}
    path: /livez
  periodSeconds: 10
  failureThreshold: 6
{{- end }}
securityContext:
  {{- include "stackd.securityContext" . | nindent 2 }}
resources:
  requests:
    cpu: {{ .Values.resources.cpuRequest }}
    memory: {{ .Values.resources.memoryRequestMiB }}Mi
  limits:
    memory: {{ $.memoryLimitMiB }}Mi
volumeMounts:
  - name: stackd-run
    mountPath: /run/stackd
  - name: stackd-store
    mountPath: /var/lib/stackd
  - name: stackd-podinfo
    mountPath: /etc/podinfo
    readOnly: true
  {{- if include "stackd.settings" . }}
  - name: stackd-settings
    mountPath: /etc/stackd/settings
    readOnly: true
  {{- end }}
  {{- if .Values.api.tls.secretName }}
  - name: stackd-tls
    mountPath: /etc/stackd/tls
    readOnly: true
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Volumes of the daemon but stackd-run. */}}
{{- define "stackd.daemonVolumes" -}}
- name: stackd-store
  emptyDir:
    sizeLimit: {{ add (mul 2 .Values.store.sizeMiB) 512 }}Mi
- name: stackd-podinfo
  downwardAPI:
    items:
      - path: labels
        fieldRef:
          fieldPath: metadata.labels
      - path: annotations
        fieldRef:
          fieldPath: metadata.annotations
{{- if include "stackd.settings" . }}
- name: stackd-settings
  configMap:
    name: {{ include "stackd.fullname" . }}-settings
{{- end }}
{{- with .Values.api.tls.secretName }}
- name: stackd-tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}

{{/* ---- For a program's own chart: see ../example-app. Each takes the context of this chart, .Subcharts.stackd. ---- */}}

{{- define "stackd.initContainers" -}}
{{- include "stackd.check" . -}}
- restartPolicy: Always
  {{- include "stackd.container" (dict "chart" . "maxProcesses" .Values.maxProcesses
      "memoryLimitMiB" .Values.resources.memoryLimitMiB) | nindent 2 }}
- name: stackd-agent
  image: {{ include "stackd.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [install-agent, /run/stackd/agent]
  securityContext:
    {{- include "stackd.securityContext" . | nindent 4 }}
  resources:
    requests:
      cpu: 10m
      memory: 16Mi
    limits:
      memory: 64Mi
  volumeMounts:
    - name: stackd-run
      mountPath: /run/stackd
    - name: stackd-agent
      mountPath: /run/stackd/agent
{{- end -}}

{{- define "stackd.volumes" -}}
- name: stackd-run
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.runVolumeMiB }}Mi
- name: stackd-agent
  emptyDir:
    sizeLimit: 16Mi
{{ include "stackd.daemonVolumes" . }}
{{- end -}}

{{- define "stackd.podLabels" -}}
stackd.dev/sidecar: "true"
{{- end -}}

{{- define "stackd.env" -}}
- name: LD_PRELOAD
  value: /run/stackd/agent/libstackd_agent.so
- name: STACKD_DIR
  value: /run/stackd
- name: STACKD_DAEMON_UID
  value: "64532"
{{- end -}}

{{- define "stackd.volumeMounts" -}}
- name: stackd-run
  mountPath: /run/stackd
- name: stackd-agent
  mountPath: /run/stackd/agent
  readOnly: true
{{- end -}}
