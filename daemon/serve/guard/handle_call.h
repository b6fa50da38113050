// Hands an admitted call to the service. Page tokens are for the caller and the method that they were given to.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "daemon/access/page_seal.h"
#include "daemon/serve/requests/method_of.h"
#include "daemon/serve/requests/rpc_status.h"
#include "daemon/serve/service/service.h"

namespace stackd {

template <typename Request, typename Response>
using ServiceMethod = grpc::Status (StackdService::*)(Call&, const Request&, Response*);

template <typename Request, typename Response>
grpc::Status HandleCall(StackdService* service, ServiceMethod<Request, Response> method, const PageSeal& seal, Call& call,
                        const Request& request, Response* response) {
  if constexpr (requires { request.page_token(); }) {
    const std::string list = MethodOf(request).name;
    Request opened = request;
    if (!request.page_token().empty()) {
      Result<std::string> token = seal.Open(call.caller(), list, request.page_token());
      if (!token) return ToGrpcStatus(token.error(), {.field = "page_token"});
      opened.set_page_token(*token);
    }
    grpc::Status status = (service->*method)(call, opened, response);
    if (!response->next_page_token().empty()) {
      response->set_next_page_token(seal.Close(call.caller(), list, response->next_page_token()));
    }
    return status;
  } else {
    return (service->*method)(call, request, response);
  }
}

// The status of a call for which no thread is free.
inline grpc::Status TooBusy() {
  return ToGrpcStatus({Code::kResourceExhausted, "too many calls are under way; try again", "TOO_MANY_CALLS"});
}

}  // namespace stackd
