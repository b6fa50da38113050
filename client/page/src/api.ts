// Calls of the daemon's API: unary JSON of the Connect protocol, over the origin that served the page.
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

export async function call<M extends keyof Methods>(
  method: M,
  request: Methods[M][0],
  signal?: AbortSignal,
): Promise<Methods[M][1]> {
  const response = await fetch(`./stackd.v1.Stackd/${method}`, {
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
    throw new ApiError('unreachable', 'The daemon does not answer: is it running, and is the port-forward still up?');
  });
  if (response.ok) return (await response.json()) as Methods[M][1];
  throw await errorOf(response);
}

async function errorOf(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const { code, message: sentence } = (body ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string')
    return new ApiError(code, typeof sentence === 'string' && sentence !== '' ? sentence : code);
  return new ApiError(
    'unreachable',
    `The daemon answered with HTTP status ${response.status}, which is no answer of its API.`,
  );
}
