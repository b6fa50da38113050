package reviews

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"stackd.example/fleet/gateway"
)

var alice = authentication.UserInfo{Username: "alice", UID: "7", Groups: []string{"oncall", "system:authenticated"},
	Extra: map[string]authentication.ExtraValue{"scopes": {"a", "b"}}}

// reviewed answers as an API server does: it knows one token, made for one audience, and a right of its owner.
func reviewed(t *testing.T, audience string, rights func(authorization.SubjectAccessReviewSpec) authorization.SubjectAccessReviewStatus) *Reviewer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var answer any
		switch request.Method + " " + request.URL.Path {
		case "POST /apis/authentication.k8s.io/v1/tokenreviews":
			var review authentication.TokenReview
			if json.NewDecoder(request.Body).Decode(&review) != nil || review.Kind != "TokenReview" {
				t.Errorf("%v", review)
			}
			if review.Spec.Token == "good" {
				review.Status = authentication.TokenReviewStatus{Authenticated: true, User: alice, Audiences: []string{"api", "stackd"}}
			}
			answer = &review
		case "POST /apis/authorization.k8s.io/v1/subjectaccessreviews":
			var review authorization.SubjectAccessReview
			if json.NewDecoder(request.Body).Decode(&review) != nil || review.Kind != "SubjectAccessReview" {
				t.Errorf("%v", review)
			}
			if rights == nil {
				writer.WriteHeader(http.StatusForbidden)
				answer = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: "subjectaccessreviews is forbidden"}
				break
			}
			review.Status = rights(review.Spec)
			answer = &review
		default:
			t.Errorf("%s %s", request.Method, request.URL)
		}
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	reviewer, err := New(&rest.Config{Host: server.URL}, audience)
	if err != nil {
		t.Fatal(err)
	}
	return reviewer
}

func TestATokenBelongsToWhomTheAPIServerSays(t *testing.T) {
	for _, each := range []struct {
		audience, token string
		known           bool
	}{{"", "good", true}, {"", "bad", false}, {"stackd", "good", true}, {"other", "good", false}} {
		subject, err := reviewed(t, each.audience, nil).Review(t.Context(), each.token)
		if err != nil || (subject != nil) != each.known {
			t.Errorf("%v: %v %v", each, subject, err)
		}
		want := &gateway.Subject{Name: "alice", UID: "7", Groups: alice.Groups, Extra: map[string][]string{"scopes": {"a", "b"}}}
		if each.known && !reflect.DeepEqual(subject, want) {
			t.Errorf("%v", subject)
		}
	}
}

func TestARightIsAskedForWithAllThatIsKnownOfTheSubject(t *testing.T) {
	var asked []authorization.SubjectAccessReviewSpec
	status := authorization.SubjectAccessReviewStatus{Allowed: true}
	reviewer := reviewed(t, "", func(spec authorization.SubjectAccessReviewSpec) authorization.SubjectAccessReviewStatus {
		asked = append(asked, spec)
		return status
	})
	subject, err := reviewer.Review(t.Context(), "good")
	if err != nil {
		t.Fatal(err)
	}
	may := func(namespace string, want bool) {
		t.Helper()
		if got, err := reviewer.May(t.Context(), subject, namespace); got != want || err != nil {
			t.Errorf("%v %v", got, err)
		}
	}
	may("shop", true)
	want := authorization.SubjectAccessReviewSpec{User: "alice", UID: "7", Groups: alice.Groups,
		Extra:              map[string]authorization.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorization.ResourceAttributes{Namespace: "shop", Verb: "get", Version: "v1", Resource: "pods", Subresource: "stackd"}}
	if !reflect.DeepEqual(asked[0], want) {
		t.Errorf("%v", asked[0])
	}
	status.Denied = true
	may("shop", false)
	status = authorization.SubjectAccessReviewStatus{}
	may("", false)
	if asked[2].ResourceAttributes.Namespace != "" {
		t.Errorf("%v", asked[2])
	}
}

func TestAnAPIServerThatRefusesIsAnError(t *testing.T) {
	may, err := reviewed(t, "", nil).May(t.Context(), &gateway.Subject{Name: "alice"}, "shop")
	if may || err == nil || !strings.Contains(err.Error(), "subjectaccessreviews is forbidden") {
		t.Errorf("%v %v", may, err)
	}
	away, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if subject, err := away.Review(t.Context(), "good"); subject != nil || err == nil {
		t.Errorf("%v %v", subject, err)
	}
}
