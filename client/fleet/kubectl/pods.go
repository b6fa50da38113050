// Package kubectl asks daemons through kubectl, with the operator's own rights: no port is open, and no gateway is needed.
package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stackd.example/fleet/targets"
)

// Kubectl runs the program, which has the operator's kubeconfig.
type Kubectl struct {
	Program string
	// Which cluster, as kubectl itself takes it: --context, --kubeconfig, ...
	Cluster []string
	// The container of the daemon.
	Container string
}

// Pods says which pods are meant, as `kubectl get pods` has it.
type Pods struct {
	Namespace string
	// All namespaces.
	All bool
	// Selector of labels.
	Selector string
	Names    []string
}

type podList struct {
	Items []pod `json:"items"`
}

type pod struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
		Owners    []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		NodeName       string      `json:"nodeName"`
		Containers     []container `json:"containers"`
		InitContainers []container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type container struct {
	Name string `json:"name"`
}

// As Kubernetes has names: none is taken for an option.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

const maxListBytes = 512 << 20

// List returns the pods that have a daemon, and the names of those that have none.
func (k *Kubectl) List(ctx context.Context, meant Pods) (found []targets.Target, without []string, err error) {
	args := []string{"get", "pods", "--output=json"}
	switch {
	case meant.All:
		args = append(args, "--all-namespaces")
	case meant.Namespace != "":
		args = append(args, "--namespace="+meant.Namespace)
	}
	if meant.Selector != "" {
		args = append(args, "--selector="+meant.Selector)
	}
	out, err := k.run(ctx, maxListBytes, args...)
	if err != nil {
		return nil, nil, err
	}
	var list podList
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, nil, fmt.Errorf("kubectl get pods gave no list of pods: %w", err)
	}
	known := map[string]bool{}
	for _, each := range list.Items {
		name := each.Metadata.Name
		known[name] = true
		if len(meant.Names) > 0 && !slices.Contains(meant.Names, name) || each.Status.Phase == "Succeeded" || each.Status.Phase == "Failed" {
			continue
		}
		if !validName.MatchString(name) || !validName.MatchString(each.Metadata.Namespace) {
			return nil, nil, fmt.Errorf("kubectl get pods gave a pod named %.60q", each.Metadata.Namespace+"/"+name)
		}
		if !each.has(k.Container) {
			without = append(without, each.Metadata.Namespace+"/"+name)
			continue
		}
		found = append(found, each.target())
	}
	for _, name := range meant.Names {
		if !known[name] {
			return nil, nil, fmt.Errorf("there is no pod %s", name)
		}
	}
	return found, without, nil
}

// A native sidecar is an init container that stays.
func (p *pod) has(name string) bool {
	is := func(one container) bool { return one.Name == name }
	return slices.ContainsFunc(p.Spec.Containers, is) || slices.ContainsFunc(p.Spec.InitContainers, is)
}

func (p *pod) target() targets.Target {
	labels := map[string]string{}
	for key, value := range p.Metadata.Labels {
		labels[key] = value
	}
	labels[targets.PodLabel], labels[targets.NamespaceLabel] = p.Metadata.Name, p.Metadata.Namespace
	labels["node"] = p.Spec.NodeName
	for _, owner := range p.Metadata.Owners {
		// The name of a ReplicaSet is that of its Deployment and a hash.
		labels["workload"] = strings.TrimSuffix(owner.Name, "-"+p.Metadata.Labels["pod-template-hash"])
	}
	return targets.Target{Address: p.Metadata.Namespace + "/" + p.Metadata.Name, Labels: labels}
}

// ErrNoKubectl says that there is no such program.
var ErrNoKubectl = errors.New("kubectl is not in PATH")
