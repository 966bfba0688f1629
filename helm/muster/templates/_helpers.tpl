{{/* Names. A release that is called muster, or has it in its name, is not called so twice. */}}
{{- define "muster.name" -}}
{{- if contains "muster" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-muster" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "muster.labels" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What selects the pods of one part: (list . "web") */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "muster.image" -}}
{{ required "image.repository is not set: push the image to a registry of yours and name it (docs/install.md)" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "muster.isOwnSecret" -}}
{{- if and (not .Values.secrets.existing) .Values.postgres.embedded .Values.redis.embedded }}yes{{ end }}
{{- end }}

{{- define "muster.secret" -}}
{{- if include "muster.isOwnSecret" . }}{{ include "muster.name" . }}-secrets
{{- else }}{{ required "secrets.existing is not set: create a Secret with the keys secret_key, database_url and redis_url and name it, or set postgres.embedded and redis.embedded for trying out" .Values.secrets.existing }}
{{- end }}
{{- end }}

{{/* Refuse a Secret that is not there or lacks a key: pods would wait for it without a word. Without the cluster, as for
`helm template`, and in a namespace that does not exist yet, nothing of yours can be looked up. */}}
{{- define "muster.needSecret" -}}
{{- $hasCluster := lookup "v1" "ServiceAccount" .Release.Namespace "default" }}
{{- $isOwn := eq (include "muster.isOwnSecret" .) "yes" }}
{{- if or $isOwn .Values.secrets.existing }}
{{- $name := include "muster.secret" . }}
{{- $found := lookup "v1" "Secret" .Release.Namespace $name }}
{{- if and (not $isOwn) $hasCluster (not $found) }}{{ fail (printf "secrets.existing names the Secret %s, which does not exist in namespace %s: create it first (docs/helm.md)" $name .Release.Namespace) }}{{ end }}
{{- if or $isOwn $found }}
{{- $keys := dict }}
{{- with $found }}{{ $keys = .data | default dict }}{{ end }}
{{- range $key := include "muster.keys" . | fromJsonArray }}
{{- if not (or (hasKey $keys $key) (and $isOwn (has $key (list "secret_key" "database_url" "redis_url" "postgres_password" "redis_password")))) }}
{{- $what := $isOwn | ternary "the chart's own Secret" "secrets.existing: the Secret" }}
{{- fail (printf "%s %s in namespace %s has no key %s%s (docs/helm.md)" $what $name $.Release.Namespace $key ($isOwn | ternary ": create a Secret with it and all others, and name that in secrets.existing" "")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.clusterFiles $hasCluster (not (lookup "v1" "Secret" .Release.Namespace .Values.clusterFiles)) }}{{ fail (printf "clusterFiles names the Secret %s, which does not exist in namespace %s: create it first (docs/helm.md)" .Values.clusterFiles .Release.Namespace) }}{{ end }}
{{- end }}

{{/* Refuse values that are right alone and not together. */}}
{{- define "muster.refuse" -}}
{{- if and .Values.metrics.enabled (eq (int .Values.metrics.port) 8000) }}{{ fail "metrics.port is 8000, at which web serves the pages: choose another one" }}{{ end }}
{{- range $label, $value := .Values.podLabels }}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|version|component|managed-by)|helm\\.sh/chart|muster/(metrics|files))$" $label }}{{ fail (printf "podLabels: %s is set by the chart" $label) }}{{ end }}
{{- end }}
{{- if and .Values.jobs.createNamespaces (has .Release.Namespace .Values.jobs.namespaces) }}{{ fail (printf "jobs.namespaces names %s, in which Muster itself is installed and which is there already: name another one for jobs" .Release.Namespace) }}{{ end }}
{{- end }}

{{/* The keys that the Secret needs, as JSON. */}}
{{- define "muster.keys" -}}
{{- $keys := list "secret_key" "database_url" "redis_url" }}
{{- if .Values.secrets.hasOldKeys }}{{ $keys = append $keys "old_secret_keys" }}{{ end }}
{{- if .Values.data.objectStorage }}{{ $keys = append $keys "files_url" }}{{ end }}
{{- if and .Values.traces.collector .Values.traces.hasHeaders }}{{ $keys = append $keys "traces_headers" }}{{ end }}
{{- if .Values.postgres.embedded }}{{ $keys = append $keys "postgres_password" }}{{ end }}
{{- if .Values.redis.embedded }}{{ $keys = append $keys "redis_password" }}{{ end }}
{{- toJson $keys }}
{{- end }}

{{/* While files move into a bucket (MUSTER_OLD_FILES) the volume is still mounted. */}}
{{- define "muster.hasClaim" -}}
{{- if or (not .Values.data.objectStorage) .Values.data.keepVolume }}yes{{ end }}
{{- end }}

{{- define "muster.claim" -}}
{{ .Values.data.existingClaim | default (printf "%s-data" (include "muster.name" .)) }}
{{- end }}

{{- define "muster.host" -}}
{{ regexReplaceAll ":[0-9]+$" (get (urlParse (required "publicUrl is not set: the address that people use, such as https://muster.example.com" .Values.publicUrl)) "host") "" }}
{{- end }}

{{/* The Service's own address, which pods of jobs in this cluster use. */}}
{{- define "muster.inside" -}}
http://{{ include "muster.name" . }}.{{ .Release.Namespace }}.svc{{ if ne (int .Values.service.port) 80 }}:{{ .Values.service.port }}{{ end }}
{{- end }}

{{- define "muster.clusters" -}}
{{- $found := dict }}
{{- $defaults := dict "NAMESPACE" (first .Values.jobs.namespaces) "CONTROL_URL" (include "muster.inside" .) }}
{{- if .Values.jobs.makeTeamNamespaces }}{{ $_ := set $defaults "TEAM_ROLE" (printf "%s-team" (include "muster.wide" .)) }}{{ end }}
{{- range $alias, $options := .Values.clusters }}
{{- $_ := set $found $alias (dict "BACKEND" "jobs.clusters.kubernetes.KubernetesCluster" "OPTIONS" (merge (dict) $options $defaults)) }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{- define "muster.env" -}}
- {name: MUSTER_SECRET_KEY_FILE, value: /run/keys/secret_key}
- {name: DATABASE_URL_FILE, value: /run/keys/database_url}
- {name: REDIS_URL_FILE, value: /run/keys/redis_url}
{{- if .Values.secrets.hasOldKeys }}
- {name: MUSTER_OLD_SECRET_KEYS_FILE, value: /run/keys/old_secret_keys}
{{- end }}
{{- if .Values.data.objectStorage }}
- {name: MUSTER_FILES_FILE, value: /run/keys/files_url}
{{- end }}
- name: MUSTER_PUBLIC_URL
  value: {{ .Values.publicUrl | quote }}
- name: MUSTER_ALLOWED_HOSTS
  value: {{ concat (list (include "muster.name" .) (include "muster.host" .) (printf "%s.%s" (include "muster.name" .) .Release.Namespace) (printf "%s.%s.svc" (include "muster.name" .) .Release.Namespace) (printf "%s.%s.svc.cluster.local" (include "muster.name" .) .Release.Namespace)) .Values.allowedHosts | uniq | join "," | quote }}
- name: MUSTER_HTTPS
  value: {{ hasPrefix "https://" .Values.publicUrl | ternary "1" "0" | quote }}
- name: MUSTER_TRUSTED_ORIGINS
  value: {{ .Values.publicUrl | quote }}
- name: MUSTER_TRUSTED_PROXIES
  value: {{ join "," .Values.trustedProxies | quote }}
- name: MUSTER_SECOND_FACTOR
  value: {{ .Values.secondFactor | quote }}
{{- if .Values.metrics.enabled }}
- name: MUSTER_METRICS
  value: {{ printf "0.0.0.0:%v" .Values.metrics.port | quote }}
{{- end }}
{{- with .Values.traces.collector }}
- name: MUSTER_TRACES
  value: {{ . | quote }}
- name: MUSTER_TRACES_SAMPLE
  value: {{ $.Values.traces.sample | quote }}
{{- if $.Values.traces.hasHeaders }}
- {name: OTEL_EXPORTER_OTLP_HEADERS_FILE, value: /run/keys/traces_headers}
{{- end }}
{{- end }}
- name: MUSTER_CLUSTERS
  value: {{ include "muster.clusters" . | quote }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Kubernetes' profile "restricted", and a root that nothing can be written to. */}}
{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "muster.mounts" -}}
- {name: data, mountPath: /data}
- {name: keys, mountPath: /run/keys, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.clusterFiles }}
- {name: clusters, mountPath: /etc/muster, readOnly: true}
{{- end }}
{{- end }}

{{/* (list . true): with the claim for code and logs, which web and tasks share; the others need a folder of their own at most. */}}
{{- define "muster.volumes" -}}
{{- $isShared := index . 1 }}
{{- with index . 0 -}}
- name: data
  {{- if and $isShared (include "muster.hasClaim" .) }}
  persistentVolumeClaim: {claimName: {{ include "muster.claim" . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: keys
  secret:
    secretName: {{ include "muster.secret" . }}
    defaultMode: 0440
    items:
      {{- range $key := include "muster.keys" . | fromJsonArray }}
      {{- if not (hasSuffix "_password" $key) }}
      - {key: {{ $key }}, path: {{ $key }}}
      {{- end }}
      {{- end }}
- name: tmp
  emptyDir: {}
{{- if .Values.clusterFiles }}
- name: clusters
  secret: {secretName: {{ .Values.clusterFiles }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- end }}

{{/* A claim that one node at a time may mount keeps all pods that mount it on one node. */}}
{{- define "muster.affinity" -}}
{{- if and (include "muster.hasClaim" .) (not (has "ReadWriteMany" .Values.data.accessModes)) }}
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {app.kubernetes.io/instance: {{ .Release.Name }}, muster/files: shared}
{{- end }}
{{- end }}

{{/* What every pod of ours has in common. */}}
{{- define "muster.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* What Muster does with the pods of jobs, in each of their namespaces: as deploy/account.yaml, which says why. */}}
{{- define "muster.jobRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [services]
  verbs: [create, get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, get]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, get, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create]
- apiGroups: [monarch.pytorch.org]
  resources: [monarchmeshes]
  verbs: [create, get, deletecollection]
{{- end }}

{{/* How roles of the whole cluster begin: two releases may have the same name. */}}
{{- define "muster.wide" -}}
{{ .Release.Namespace }}-{{ include "muster.name" . }}
{{- end }}

{{/* Roles of the whole cluster, by the file in deploy/ that says what each is for. The team's two are bound by Muster in the
namespaces that it makes. */}}
{{- define "muster.wideRoles" -}}
{{- if .Values.jobs.seeNodes }}
nodes:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
  - {apiGroups: [storage.k8s.io], resources: [storageclasses], verbs: [list]}
{{- end }}
{{- if .Values.jobs.seeForeignPods }}
foreign-pods:
  - {apiGroups: [""], resources: [pods], verbs: [list]}
{{- end }}
{{- if .Values.jobs.watchAllNamespaces }}
all-namespaces:
  - {apiGroups: [""], resources: [pods, services, events], verbs: [list, watch]}
{{- end }}
{{- if .Values.jobs.makeTeamNamespaces }}
team: {{- include "muster.jobRules" . | nindent 2 }}
team-reader:
  - {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
team-namespaces:
  - {apiGroups: [""], resources: [namespaces], verbs: [create]}
  - {apiGroups: [""], resources: [serviceaccounts], verbs: [create]}
  - {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [create]}
  - apiGroups: [rbac.authorization.k8s.io]
    resources: [clusterroles]
    resourceNames: [{{ include "muster.wide" . }}-team, {{ include "muster.wide" . }}-team-reader]
    verbs: [bind]
{{- end }}
{{- end }}
