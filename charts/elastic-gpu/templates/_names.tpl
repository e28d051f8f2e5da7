{{/* Names. Everything that is not in a namespace carries the release's name, so that charts of other drivers cannot collide with it. */}}

{{- define "elastic-gpu.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "elastic-gpu.node" -}}{{ include "elastic-gpu.name" . }}-node{{- end -}}
{{- define "elastic-gpu.webhook" -}}{{ include "elastic-gpu.name" . }}-webhook{{- end -}}
{{- define "elastic-gpu.controller" -}}{{ include "elastic-gpu.name" . }}-controller{{- end -}}

{{- define "elastic-gpu.remote" -}}{{ include "elastic-gpu.name" . }}-remote{{- end -}}

{{- define "elastic-gpu.pool" -}}{{ include "elastic-gpu.name" . }}-pool{{- end -}}

{{/* The driver's name is part of its API (devices, classes and claims carry it) and so not a value. */}}
{{- define "elastic-gpu.driver" -}}gpu.elasticgpu.io{{- end -}}
{{- define "elastic-gpu.remoteDriver" -}}remote.gpu.elasticgpu.io{{- end -}}

{{- define "elastic-gpu.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "elastic-gpu.selector" -}}
app.kubernetes.io/name: elastic-gpu
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "elastic-gpu.labels" -}}
{{ include "elastic-gpu.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The resource names of older systems that translation reads; tests compare with translate.asks. */}}
{{- define "elastic-gpu.oldNames" -}}
['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores', 'nvidia.com/priority', 'tke.cloud.tencent.com/qgpu-core', 'tke.cloud.tencent.com/qgpu-memory', 'tke.cloud.tencent.com/qgpu-core-greedy', 'tencent.com/vcuda-core', 'tencent.com/vcuda-memory', 'aliyun.com/gpu-mem', 'elasticgpu.io/gpu-core', 'elasticgpu.io/gpu-memory']
{{- end -}}

{{/* Where the API server is, for clusters in which nothing answers at the address of its service. Items of env, or nothing. */}}
{{- define "elastic-gpu.apiServer" -}}
{{- with .Values.apiServer.host -}}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $.Values.apiServer.port | quote }}}
{{- end -}}
{{- end -}}

{{/* What a pod without rights on its node has in common with others: `of` has where it runs. */}}
{{- define "elastic-gpu.pod" -}}
{{- with .root.Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{ end -}}
{{- with .of.priorityClassName -}}
priorityClassName: {{ . }}
{{ end -}}
{{- with .of.nodeSelector -}}
nodeSelector: {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with .of.affinity -}}
affinity: {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with .of.tolerations -}}
tolerations: {{- toYaml . | nindent 2 }}
{{ end -}}
securityContext:
  runAsNonRoot: true
  {{- /* OpenShift chooses a user itself and refuses others. */}}
  {{- if not .root.Values.openshift.enabled }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "elastic-gpu.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
