// Package reviews asks the API server whom a token belongs to, and whose pods that one may see.
package reviews

import (
	"context"
	"errors"
	"slices"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"stackd.example/fleet/gateway"
)

// What a caller needs in a namespace: `get pods/stackd`. No resource of that name exists; it is there for rules of RBAC.
const (
	verb        = "get"
	resource    = "pods"
	subresource = "stackd"
)

// Questions a second, and at once: strangers can have tokens reviewed.
const (
	questionsPerSecond = 50
	questionsAtOnce    = 100
)

// Reviewer asks one API server.
type Reviewer struct {
	tokens, rights *rest.RESTClient
	// Empty: that of the API server.
	audience string
}

// New connects nothing yet.
func New(config *rest.Config, audience string) (*Reviewer, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(authentication.AddToScheme(scheme), authorization.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	client := func(version schema.GroupVersion) (*rest.RESTClient, error) {
		metav1.AddToGroupVersion(scheme, version)
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath = &version, "/apis"
		own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		own.UserAgent = "stackd-gateway"
		own.QPS, own.Burst = questionsPerSecond, questionsAtOnce
		return rest.RESTClientFor(own)
	}
	tokens, err := client(authentication.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	rights, err := client(authorization.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return &Reviewer{tokens, rights, audience}, nil
}

// Review creates a TokenReview.
func (r *Reviewer) Review(ctx context.Context, token string) (*gateway.Subject, error) {
	review := &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}
	if r.audience != "" {
		review.Spec.Audiences = []string{r.audience}
	}
	var said authentication.TokenReview
	if err := r.tokens.Post().Resource("tokenreviews").Body(review).Do(ctx).Into(&said); err != nil {
		return nil, err
	}
	// An authenticator that knows no audiences leaves them out: its tokens are made for the API server.
	if !said.Status.Authenticated || r.audience != "" && !slices.Contains(said.Status.Audiences, r.audience) {
		return nil, nil
	}
	user := said.Status.User
	subject := &gateway.Subject{Name: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string][]string{}}
	for key, values := range user.Extra {
		subject.Extra[key] = values
	}
	return subject, nil
}

// May creates a SubjectAccessReview.
func (r *Reviewer) May(ctx context.Context, subject *gateway.Subject, namespace string) (bool, error) {
	extra := map[string]authorization.ExtraValue{}
	for key, values := range subject.Extra {
		extra[key] = values
	}
	review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User: subject.Name, UID: subject.UID, Groups: subject.Groups, Extra: extra,
		ResourceAttributes: &authorization.ResourceAttributes{Namespace: namespace, Verb: verb, Version: "v1", Resource: resource,
			Subresource: subresource},
	}}
	var said authorization.SubjectAccessReview
	if err := r.rights.Post().Resource("subjectaccessreviews").Body(review).Do(ctx).Into(&said); err != nil {
		return false, err
	}
	return said.Status.Allowed && !said.Status.Denied, nil
}
