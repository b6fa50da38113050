package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
)

// validate says what an API server would refuse: a JSON list of objects, a line for each fault.
func validate(objectsJSON []byte) error {
	objects := []json.RawMessage{}
	if err := json.Unmarshal(objectsJSON, &objects); err != nil {
		return err
	}
	for _, object := range objects {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := json.Unmarshal(object, &head); err != nil {
			return err
		}
		for _, fault := range faultsOf(head.APIVersion, head.Kind, object) {
			fmt.Printf("%s %s: %v\n", head.Kind, head.Metadata.Name, fault)
		}
	}
	return nil
}

func faultsOf(apiVersion, kind string, object []byte) []error {
	// A custom resource, which the API server knows by its types only.
	if apiVersion == monitoringv1.SchemeGroupVersion.String() {
		into := map[string]any{"PodMonitor": &monitoringv1.PodMonitor{}, "PrometheusRule": &monitoringv1.PrometheusRule{}}[kind]
		decoder := json.NewDecoder(bytes.NewReader(object))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(into); err != nil {
			return []error{err}
		}
		return nil
	}
	decoded, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(object, nil, nil)
	if err != nil {
		return []error{err}
	}
	faults := []error{}
	for _, fault := range refusals(decoded) {
		faults = append(faults, fault)
	}
	return faults
}

func refusals(object runtime.Object) field.ErrorList {
	switch o := object.(type) {
	case *core.Pod:
		o.Namespace = "default"
		return podRefusals(o)
	case *core.ConfigMap:
		o.Namespace = "default"
		return corevalidation.ValidateConfigMap(o)
	case *core.PersistentVolume:
		return corevalidation.ValidatePersistentVolume(o, corevalidation.ValidationOptionsForPersistentVolume(o, nil))
	case *core.PersistentVolumeClaim:
		o.Namespace = "default"
		return corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.ValidationOptionsForPersistentVolumeClaimCreate())
	case *core.Service:
		o.Namespace = "default"
		// The API server has allocated it by then, or seen that there is to be none.
		if o.Spec.ClusterIP != "" {
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		return corevalidation.ValidateServiceCreate(o)
	case *core.ServiceAccount:
		o.Namespace = "default"
		return corevalidation.ValidateServiceAccount(o)
	case *rbac.Role:
		o.Namespace = "default"
		return rbacvalidation.ValidateRole(o)
	case *rbac.RoleBinding:
		o.Namespace = "default"
		return rbacvalidation.ValidateRoleBinding(o)
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBinding(o)
	case *policy.PodDisruptionBudget:
		o.Namespace = "default"
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *apps.Deployment:
		o.Namespace = "default"
		return appsvalidation.ValidateDeployment(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.DaemonSet:
		o.Namespace = "default"
		return appsvalidation.ValidateDaemonSet(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *networking.NetworkPolicy:
		o.Namespace = "default"
		return networkvalidation.ValidateNetworkPolicy(o, networkvalidation.NetworkPolicyValidationOptions{})
	case *admissionregistration.MutatingAdmissionPolicy:
		return admissionvalidation.ValidateMutatingAdmissionPolicy(o)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		return admissionvalidation.ValidateMutatingAdmissionPolicyBinding(o)
	}
	return field.ErrorList{field.Invalid(nil, fmt.Sprintf("%T", object), "nothing here validates this kind")}
}

// podRefusals takes ephemeral containers for what was added to the pod later: no pod is created with any.
func podRefusals(pod *core.Pod) field.ErrorList {
	created := pod.DeepCopy()
	created.Spec.EphemeralContainers = nil
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&created.Spec, nil, &created.ObjectMeta, nil)
	faults := corevalidation.ValidatePodCreate(created, options)
	if len(pod.Spec.EphemeralContainers) > 0 {
		created.ResourceVersion, pod.ResourceVersion = "1", "1"
		faults = append(faults, corevalidation.ValidatePodEphemeralContainersUpdate(pod, created, options)...)
	}
	return faults
}
