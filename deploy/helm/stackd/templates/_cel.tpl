{{/*
A value as a CEL expression, so that injected pods get word for word what the templates above give. Takes dict "value" V
"path" "Object.spec.volumes". Every map is an object of the API, named by its path, but for resources' requests and limits.
*/}}
{{- define "stackd.cel" -}}
{{- if kindIs "map" .value -}}
{{- $path := .path -}}
{{- $plain := or (hasSuffix ".requests" $path) (hasSuffix ".limits" $path) -}}
{{- $fields := list -}}
{{- range $key, $value := .value -}}
{{- $name := $plain | ternary (toJson $key) $key -}}
{{- $fields = append $fields (printf "%s: %s" $name (include "stackd.cel" (dict "value" $value "path" (printf "%s.%s" $path $key)))) -}}
{{- end -}}
{{- $plain | ternary "" $path }}{ {{- join ", " $fields -}} }
{{- else if kindIs "slice" .value -}}
{{- $path := .path -}}
{{- $items := list -}}
{{- range .value -}}
{{- $items = append $items (include "stackd.cel" (dict "value" . "path" $path)) -}}
{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "float64" .value -}}
{{ int64 .value }}
{{- else -}}
{{ toJson .value }}
{{- end -}}
{{- end -}}
