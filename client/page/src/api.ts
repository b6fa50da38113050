// Calls of the API: unary JSON of the Connect protocol, over the origin that served the page. That is a daemon, or the gateway of a
// fleet, which has history and opens dumps of any pod.
import type * as message from './messages';

interface Methods {
  ListProcesses: [message.ListProcessesRequest, message.ListProcessesResponse];
  CreateDump: [message.CreateDumpRequest, message.Dump];
  GetDump: [message.GetDumpRequest, message.Dump];
  ListDumps: [message.ListDumpsRequest, message.ListDumpsResponse];
  CompareDumps: [message.CompareDumpsRequest, message.DumpComparison];
  ListStackGroups: [message.ListStackGroupsRequest, message.ListStackGroupsResponse];
  GetStackGroup: [message.GetStackGroupRequest, message.CrashGroup];
  GetDaemon: [message.GetDaemonRequest, message.Daemon];
}

interface FleetMethods {
  ListCrashes: [message.ListCrashesRequest, message.ListCrashesResponse];
  ListHangs: [message.ListHangsRequest, message.ListHangsResponse];
}

export const IS_GATEWAY = document.documentElement.hasAttribute('data-gateway');
const SERVER = IS_GATEWAY ? 'gateway' : 'daemon';

export class ApiError extends Error {
  constructor(
    // "not_found", or "unreachable" where no answer of the API came.
    readonly code: string,
    sentence: string,
  ) {
    super(sentence);
  }
}

const DEADLINE_MS = 60_000;

export function call<M extends keyof Methods>(
  method: M,
  request: Methods[M][0],
  signal?: AbortSignal,
): Promise<Methods[M][1]> {
  return post(`Stackd/${method}`, request, signal);
}

export function callFleet<M extends keyof FleetMethods>(
  method: M,
  request: FleetMethods[M][0],
  signal?: AbortSignal,
): Promise<FleetMethods[M][1]> {
  return post(`Fleet/${method}`, request, signal);
}

async function post<Response>(method: string, request: unknown, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(`./stackd.v1.${method}`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'Connect-Protocol-Version': '1',
      'Connect-Timeout-Ms': String(DEADLINE_MS),
    },
    body: JSON.stringify(request),
    credentials: 'same-origin',
    signal: signal ?? null,
  }).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError('unreachable', `The ${SERVER} does not answer: is it running, and is the port-forward still up?`);
  });
  if (response.ok) return (await response.json()) as Response;
  throw await errorOf(response);
}

async function errorOf(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const { code, message: sentence } = (body ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string')
    return new ApiError(code, typeof sentence === 'string' && sentence !== '' ? sentence : code);
  return new ApiError(
    'unreachable',
    `The ${SERVER} answered with HTTP status ${response.status}, which is no answer of its API.`,
  );
}
