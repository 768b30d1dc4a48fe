package deploy_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// workload is a Deployment or StatefulSet.
type workload struct {
	name     string
	replicas *int32
	selector *metav1.LabelSelector
	pod      corev1.PodTemplateSpec
}

// cluster holds the objects of a kustomization, decoded with the types of their APIs. Unknown fields are errors.
type cluster struct {
	workloads   []workload
	services    []corev1.Service
	budgets     []policyv1.PodDisruptionBudget
	scaled      []v1alpha1.ScaledObject
	configMaps  map[string]map[string]string
	otherKinds  []string
	objectNames []string
}

func build(t *testing.T, dir string) *cluster {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	c := &cluster{configMaps: map[string]map[string]string{}}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		require.NoError(t, err)
		c.objectNames = append(c.objectNames, r.GetKind()+"/"+r.GetName())
		strict := func(into any) { require.NoError(t, yaml.UnmarshalStrict(text, into), "%s", text) }
		switch r.GetKind() {
		case "Deployment":
			var d appsv1.Deployment
			strict(&d)
			c.workloads = append(c.workloads, workload{d.Name, d.Spec.Replicas, d.Spec.Selector, d.Spec.Template})
		case "StatefulSet":
			var s appsv1.StatefulSet
			strict(&s)
			c.workloads = append(c.workloads, workload{s.Name, s.Spec.Replicas, s.Spec.Selector, s.Spec.Template})
		case "Service":
			var s corev1.Service
			strict(&s)
			c.services = append(c.services, s)
		case "PodDisruptionBudget":
			var b policyv1.PodDisruptionBudget
			strict(&b)
			c.budgets = append(c.budgets, b)
		case "ScaledObject":
			var s v1alpha1.ScaledObject
			strict(&s)
			c.scaled = append(c.scaled, s)
		case "ConfigMap":
			var m corev1.ConfigMap
			strict(&m)
			c.configMaps[m.Name] = m.Data
		default:
			c.otherKinds = append(c.otherKinds, r.GetKind())
		}
	}
	return c
}

// X2: base and overlay are built and decoded strictly. No manifest contains a secret.
func TestKubernetes_Manifests_AreValid(t *testing.T) {
	t.Parallel()
	base, overlay := build(t, "kubernetes/base"), build(t, "kubernetes/overlays/example")
	require.Empty(t, base.otherKinds)
	require.Empty(t, base.scaled, "the base works without KEDA")
	require.Equal(t, []string{"Namespace"}, overlay.otherKinds)
	for _, c := range []*cluster{base, overlay} {
		require.Len(t, c.workloads, 7)
		unique := slices.Clone(c.objectNames)
		slices.Sort(unique)
		require.Len(t, slices.Compact(unique), len(c.objectNames))
	}
}

func TestKubernetes_Selectors_MatchOneWorkload(t *testing.T) {
	t.Parallel()
	c := build(t, "kubernetes/overlays/example")
	matched := func(s *metav1.LabelSelector) (names []string) {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		for _, w := range c.workloads {
			if selector.Matches(labels.Set(w.pod.Labels)) {
				names = append(names, w.name)
			}
		}
		return names
	}
	for _, w := range c.workloads {
		require.Equal(t, []string{w.name}, matched(w.selector))
	}
	protected := map[string]bool{}
	for _, b := range c.budgets {
		names := matched(b.Spec.Selector)
		require.Len(t, names, 1, b.Name)
		protected[names[0]] = true
	}
	require.Len(t, protected, len(c.workloads), "each workload has a PodDisruptionBudget")
	for _, s := range c.services {
		names := matched(&metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		require.Len(t, names, 1, s.Name)
		for _, port := range s.Spec.Ports {
			_, ok := ports(c.workload(names[0]).pod.Spec)[port.TargetPort.StrVal]
			require.True(t, ok, "service %s: port %s", s.Name, port.TargetPort.StrVal)
		}
	}
}

func (c *cluster) workload(name string) workload {
	i := slices.IndexFunc(c.workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		return workload{}
	}
	return c.workloads[i]
}

func ports(pod corev1.PodSpec) map[string]int32 {
	named := map[string]int32{}
	for _, c := range pod.Containers {
		for _, p := range c.Ports {
			named[p.Name] = p.ContainerPort
		}
	}
	return named
}

func TestKubernetes_Containers_AreProbedAndRestricted(t *testing.T) {
	t.Parallel()
	c := build(t, "kubernetes/overlays/example")
	for _, w := range c.workloads {
		pod := w.pod.Spec
		require.True(t, *pod.SecurityContext.RunAsNonRoot, w.name)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, w.name)
		require.False(t, *pod.AutomountServiceAccountToken, w.name)
		require.NotNil(t, pod.TerminationGracePeriodSeconds, w.name)
		for _, container := range pod.Containers {
			name := w.name + "/" + container.Name
			require.Regexp(t, `:v?\d+\.\d+\.\d+$`, container.Image, name)
			require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, name)
			require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, name)
			require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, name)
			require.False(t, container.Resources.Limits.Memory().IsZero(), name)
			require.False(t, container.Resources.Requests.Cpu().IsZero(), name)
			for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
				require.NotNil(t, probe, name)
				require.Contains(t, ports(corev1.PodSpec{Containers: []corev1.Container{container}}), probe.HTTPGet.Port.StrVal, name)
			}
			if strings.Contains(container.Image, "berth") {
				require.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path, name)
				require.Equal(t, "/readyz", container.StartupProbe.HTTPGet.Path, name)
				require.Equal(t, "/healthz", container.LivenessProbe.HTTPGet.Path, name)
				require.Equal(t, fmt.Sprintf("0.0.0.0:%d", ports(pod)["metrics"]), c.env(t, container)["BERTH_METRICS_ADDR"], name)
			}
			for _, mount := range container.VolumeMounts {
				require.True(t, slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }), name)
			}
		}
		for _, v := range pod.Volumes {
			if v.ConfigMap != nil {
				require.Contains(t, c.configMaps, v.ConfigMap.Name, w.name)
			}
		}
	}
}

// env returns the variables of a container with the values that the manifests contain.
func (c *cluster) env(t *testing.T, container corev1.Container) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, from := range container.EnvFrom {
		require.Contains(t, c.configMaps, from.ConfigMapRef.Name, container.Name)
		for name, value := range c.configMaps[from.ConfigMapRef.Name] {
			all[name] = value
		}
	}
	for _, v := range container.Env {
		all[v.Name] = v.Value
	}
	return all
}

// TestKubernetes_Secrets_AreDocumented checks that docs/deploy.md creates each key of a secret that a pod needs.
func TestKubernetes_Secrets_AreDocumented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../docs/deploy.md")
	require.NoError(t, err)
	needed := map[string]bool{}
	for _, w := range build(t, "kubernetes/base").workloads {
		for _, container := range w.pod.Spec.Containers {
			for _, v := range container.Env {
				if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
					needed[v.ValueFrom.SecretKeyRef.Name+" "+v.ValueFrom.SecretKeyRef.Key] = true
				}
				if dir, key := path.Split(v.Value); strings.HasSuffix(v.Name, "_FILE") { // a key of a secret that is mounted there
					mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath+"/" == dir })
					require.NotEqual(t, -1, mount, "%s: nothing is mounted at %s", v.Name, dir)
					volume := slices.IndexFunc(w.pod.Spec.Volumes, func(o corev1.Volume) bool { return o.Name == container.VolumeMounts[mount].Name })
					needed[w.pod.Spec.Volumes[volume].Secret.SecretName+" "+key] = true
				}
			}
		}
	}
	require.NotEmpty(t, needed)
	for secret := range needed {
		name, key, _ := strings.Cut(secret, " ")
		require.Regexp(t, `(?s)create secret generic `+name+`\b[^\n]*(\\\n[^\n]*)*--from-literal=`+key+`=`, string(docs))
	}
}

// KEDA reads the metadata of a trigger as strings, so the Go types do not check their names: these are the fields of the
// scalers "temporal" and "prometheus" in KEDA 2.17 to 2.21.
func TestKubernetes_ScaledObjects_ScaleExistingWorkers(t *testing.T) {
	t.Parallel()
	c := build(t, "kubernetes/overlays/example")
	fields := map[string][]string{
		"temporal": {
			"endpoint", "endpointFromEnv", "namespace", "namespaceFromEnv", "taskQueue", "queueTypes", "targetQueueSize",
			"activationTargetQueueSize", "minConnectTimeout", "unsafeSsl", "tlsServerName",
		},
		"prometheus": {"serverAddress", "query", "threshold", "activationThreshold", "namespace", "ignoreNullValues", "unsafeSsl", "timeout"},
	}
	scales := map[string]string{}
	for _, s := range c.scaled {
		target := c.workload(s.Spec.ScaleTargetRef.Name)
		require.NotEmpty(t, target.name, s.Name)
		require.Nil(t, target.replicas, "%s: the number of replicas belongs to KEDA", target.name)
		require.LessOrEqual(t, *s.Spec.MinReplicaCount, *s.Spec.MaxReplicaCount)
		require.Len(t, s.Spec.Triggers, 1)
		trigger := s.Spec.Triggers[0]
		scales[target.name] = trigger.Type
		for field := range trigger.Metadata {
			require.Contains(t, fields[trigger.Type], field, s.Name)
		}
		container := target.pod.Spec.Containers[0]
		switch trigger.Type {
		case "temporal":
			env := c.env(t, container)
			require.NotEmpty(t, env[trigger.Metadata["endpointFromEnv"]])
			require.NotEmpty(t, env[trigger.Metadata["namespaceFromEnv"]])
			queues, ok := strings.CutPrefix(container.Args[len(container.Args)-1], "--queues=")
			require.True(t, ok)
			require.Contains(t, strings.Split(queues, ","), trigger.Metadata["taskQueue"], s.Name)
		case "prometheus":
			requireMetrics(t, trigger.Metadata["query"])
			require.Contains(t, trigger.Metadata["query"], `pod=~"`+target.name+`-.+"`)
		}
	}
	require.Equal(t, map[string]string{
		"berth-worker-tasks": "temporal", "berth-worker-turns": "temporal", "berth-worker-conferences": "temporal",
		"berth-worker-models": "prometheus",
	}, scales)
}
