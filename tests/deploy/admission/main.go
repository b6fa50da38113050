// What an API server would say of manifests, by the API server's own code. It validates them, puts a Pod through a
// MutatingAdmissionPolicy, and holds Pods against a Pod Security Standard.
//
//	admission validate <objects.json                   a line for each fault: KIND NAME: FAULT
//	admission restricted <pods.json                    a line for each violation: NAME: REASON (DETAIL)
//	admission mutate POLICY.json VERSION <pod.json     the pod as the policy leaves it, in a cluster of VERSION (1.36)
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	switch {
	case len(arguments) == 3 && arguments[0] == "mutate":
		return mutate(arguments[1], arguments[2], input)
	case len(arguments) == 1 && arguments[0] == "restricted":
		return restricted(input)
	case len(arguments) == 1 && arguments[0] == "validate":
		return validate(input)
	}
	return fmt.Errorf("validate, restricted, or mutate POLICY.json VERSION")
}

func decodeStrictly(data []byte, into runtime.Object) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// mutate compiles and applies the policy in the order and with the options of the API server's admission plugin, whose own
// compiler is not exported.
func mutate(policyFile, clusterVersion string, podJSON []byte) error {
	data, err := os.ReadFile(policyFile)
	if err != nil {
		return err
	}
	var mutating v1.MutatingAdmissionPolicy
	if err := decodeStrictly(data, &mutating); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	pod := &corev1.Pod{}
	if err := decodeStrictly(podJSON, pod); err != nil {
		return fmt.Errorf("pod: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(mutating.Spec.MatchConstraints.ObjectSelector)
	if err != nil {
		return err
	}
	mutated := runtime.Object(pod)
	if selector.Matches(labels.Set(pod.Labels)) {
		parsed, err := version.ParseMajorMinor(clusterVersion)
		if err != nil {
			return err
		}
		if mutated, err = apply(&mutating, parsed, pod); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(mutated)
}

func apply(mutating *v1.MutatingAdmissionPolicy, cluster *version.Version, pod *corev1.Pod) (runtime.Object, error) {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(cluster))
	if err != nil {
		return nil, err
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	// NewExpressions: what a cluster of this version accepts when an administrator creates the policy.
	mode := environment.NewExpressions
	variables := []cel.NamedExpressionAccessor{}
	for _, variable := range mutating.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: variable.Name, Expression: variable.Expression})
	}
	for i, variable := range variables {
		if result := compiler.CompileAndStoreVariable(variable, options, mode); result.Error != nil {
			return nil, fmt.Errorf("variable %s: %w", mutating.Spec.Variables[i].Name, result.Error)
		}
	}
	conditions := []cel.ExpressionAccessor{}
	for i := range mutating.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&mutating.Spec.MatchConditions[i]))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, mode), mutating.Spec.FailurePolicy,
		"policy", "mutate", mutating.Name)

	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	pod.SetGroupVersionKind(kind)
	ctx := compiler.CreateContext(context.Background())
	attributes := func(object runtime.Object) *admission.VersionedAttributes {
		record := admission.NewAttributesRecord(object, nil, kind, pod.Namespace, pod.Name, resource, "", admission.Create,
			&metav1.CreateOptions{}, false, nil)
		return &admission.VersionedAttributes{Attributes: record, VersionedKind: kind,
			VersionedObject: object}
	}
	match := matcher.Match(ctx, attributes(pod), nil, nil)
	if match.Error != nil {
		return nil, fmt.Errorf("match conditions: %w", match.Error)
	}
	if !match.Matches {
		return pod, nil
	}
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	patchOptions := options
	patchOptions.HasPatchTypes = true
	object := runtime.Object(pod)
	for i, mutation := range mutating.Spec.Mutations {
		var patcher patch.Patcher
		if mutation.PatchType == v1.PatchTypeJSONPatch {
			accessor := &patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}
			patcher = patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(accessor, patchOptions, mode))
		} else {
			accessor := &patch.ApplyConfigurationCondition{Expression: mutation.ApplyConfiguration.Expression}
			patcher = patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(accessor, patchOptions, mode))
		}
		object, err = patcher.Patch(ctx, patch.Request{
			MatchedResource:     resource,
			VersionedAttributes: attributes(object),
			ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(scheme.Scheme),
			Namespace:           &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}},
			TypeConverter:       converter,
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			return nil, fmt.Errorf("mutation %d: %w", i, err)
		}
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
	return object, nil
}

func restricted(podsJSON []byte) error {
	pods := []corev1.Pod{}
	if err := json.Unmarshal(podsJSON, &pods); err != nil {
		return err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, pod := range pods {
		for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				fmt.Printf("%s: %s (%s)\n", pod.Name, result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
	}
	return nil
}
