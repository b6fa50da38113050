// Messages of proto/stackd/v1/stackd.proto and fleet.proto as proto3 JSON has them: a field with its default value is absent, and 64-bit
// numbers are strings. Fields that the page does not show are left out.

export type Duration = string; // "1.5s"
export type Timestamp = string; // RFC 3339
export type Int64 = string | number;

export type Language = 'LANGUAGE_UNSPECIFIED' | 'C_CPP' | 'RUST' | 'GO' | 'PYTHON' | 'JAVA' | 'JAVASCRIPT' | 'PHP' | 'RUBY';

export interface Process {
  name?: string;
  pid?: number;
  displayName?: string;
  executable?: string;
  argv0?: string;
  hostname?: string;
  uid?: number;
  startTime?: Timestamp;
  connectTime?: Timestamp;
  limits?: string[];
  threadCount?: number;
  resourceAttributes?: Record<string, string>;
  share?: string;
}

export interface Dump {
  name?: string;
  process?: Process;
  trigger?: string;
  state?: string;
  createTime?: Timestamp;
  captureDuration?: Duration;
  threadCounts?: ThreadCounts;
  pause?: PauseTimes;
  notes?: string[];
  groups?: StackGroup[];
  threads?: Thread[];
  stacks?: Stack[];
  modules?: Module[];
  omittedGroupCount?: number;
  lines?: string[];
  stored?: boolean;
  crash?: Crash;
  hang?: Hang;
  findings?: Finding[];
  runtimes?: Runtime[];
  tasks?: Task[];
  taskCount?: Int64;
  reports?: RuntimeReport[];
  memoryReadBytes?: Int64;
}

export interface Runtime {
  language?: Language;
  name?: string;
  problem?: string;
}

export interface Task {
  kind?: string;
  id?: Int64;
  name?: string;
  state?: string;
  waitReason?: string;
  waitDuration?: Duration;
  tid?: number;
  stack?: number;
  createdBy?: string;
  creatorId?: Int64;
}

export interface RuntimeReport {
  title?: string;
  lines?: string[];
}

export interface Hang {
  cause?: string;
  explanation?: string;
  tid?: number;
  heartbeat?: string;
  duration?: Duration;
  rule?: string;
  fingerprint?: string;
}

export interface Finding {
  kind?: string;
  severity?: string;
  explanation?: string;
  details?: string[];
  edges?: Edge[];
  tids?: number[];
}

export interface Edge {
  waiterTid?: number;
  ownerTid?: number;
  lock?: string;
  kind?: string;
}

export interface Wait {
  kind?: string;
  explanation?: string;
  owner?: string;
  ownerTid?: number;
  ownerNote?: string;
  address?: string;
  place?: string;
  lockKind?: string;
  duration?: Duration;
}

export interface Crash {
  explanation?: string;
  cause?: string;
  tid?: number;
  signalName?: string;
  codeName?: string;
  faultAddress?: string;
  abortMessage?: string;
  exceptionType?: string;
  senderPid?: number;
  senderUid?: number;
  fingerprint?: string;
  fromSpool?: boolean;
}

export interface FingerprintFrame {
  function?: string;
  module?: string;
  used?: boolean;
  rule?: string;
}

export interface CrashGroup {
  name?: string;
  fingerprint?: string;
  fingerprintRule?: string;
  crashCount?: Int64;
  firstSeenTime?: Timestamp;
  lastSeenTime?: Timestamp;
  explanation?: string;
  topFunction?: string;
  processes?: ProcessCount[];
  otherProcessCrashCount?: Int64;
  dumps?: string[];
  fingerprintFrames?: FingerprintFrame[];
  kind?: string;
}

export interface ProcessCount {
  displayName?: string;
  crashCount?: Int64;
}

export interface ThreadCounts {
  listed?: number;
  captured?: number;
  signalBlocked?: number;
  uninterruptible?: number;
  stopped?: number;
  exited?: number;
  timedOut?: number;
  ringFull?: number;
  signalQueueFull?: number;
  agentFault?: number;
  running?: number;
}

export interface PauseTimes {
  median?: Duration;
  p99?: Duration;
  max?: Duration;
  notPaused?: number;
}

export interface StackGroup {
  threadCount?: number;
  fingerprint?: string;
  tids?: number[];
  threadNames?: string[];
  stack?: Stack;
  states?: string[];
  taskCount?: Int64;
  taskIds?: Int64[];
  isAgent?: boolean;
}

export interface Thread {
  tid?: number;
  name?: string;
  status?: string;
  state?: string;
  cpuTime?: Duration;
  stack?: number;
  pause?: Duration;
  waitChannel?: string;
  wait?: Wait;
  holdsGil?: boolean;
  readAsleep?: boolean;
  isAgent?: boolean;
}

export interface Stack {
  frames?: Frame[];
  end?: string;
  omittedBytes?: Int64;
  omittedBefore?: number;
}

export interface Frame {
  function?: string;
  file?: string;
  line?: number;
  module?: string;
  address?: string;
  moduleOffset?: string;
  origin?: string;
  unnamedReason?: string;
  repeatCount?: Int64;
  repeatLength?: number;
  language?: Language;
  replaced?: boolean;
}

export interface Module {
  path?: string;
  buildId?: string;
  address?: string;
  symbols?: string;
}

export interface Daemon {
  version?: string;
  abiVersion?: number;
  pid?: number;
  startTime?: Timestamp;
  dir?: string;
  store?: string;
  processCount?: number;
  dumpCount?: Int64;
  storeBytes?: Int64;
  counters?: Record<string, Int64>;
  problems?: string[];
  resourceAttributes?: Record<string, string>;
}

export interface ListProcessesResponse {
  processes?: Process[];
  nextPageToken?: string;
}

export interface ListDumpsResponse {
  dumps?: Dump[];
  nextPageToken?: string;
}

export interface ListStackGroupsResponse {
  stackGroups?: CrashGroup[];
  nextPageToken?: string;
}

export interface DumpComparison {
  before?: string;
  after?: string;
  between?: Duration;
  verdict?: string;
  explanation?: string;
  threads?: ThreadComparison[];
  omittedThreadCount?: number;
  findings?: Finding[];
}

export interface ThreadComparison {
  tid?: number;
  name?: string;
  change?: string;
  cpuTime?: Duration;
  verdict?: string;
  explanation?: string;
}

export interface ListProcessesRequest {
  pageSize?: number;
  pageToken?: string;
  filter?: string;
}

export interface CreateDumpRequest {
  process?: string;
  requestId?: string;
  view?: string;
}

export interface GetDumpRequest {
  name?: string;
  view?: string;
  frames?: string;
}

export interface ListDumpsRequest {
  parent?: string;
  pageSize?: number;
  pageToken?: string;
  filter?: string;
  trigger?: string;
}

export interface ListStackGroupsRequest {
  pageSize?: number;
  pageToken?: string;
  filter?: string;
  kind?: string;
}

export interface GetStackGroupRequest {
  name?: string;
}

export interface CompareDumpsRequest {
  before?: string;
  after?: string;
}

export type GetDaemonRequest = Record<string, never>;

export interface FleetExample {
  pod?: string;
  target?: string;
  dump?: string;
}

export interface NameCount {
  name?: string;
  count?: Int64;
}

export interface HistoryGroup {
  fingerprint?: string;
  count?: Int64;
  firstSeenTime?: Timestamp;
  lastSeenTime?: Timestamp;
  explanation?: string;
  cause?: string;
  services?: NameCount[];
  versions?: NameCount[];
  pods?: NameCount[];
  podCount?: Int64;
  dumps?: FleetExample[];
}

export interface ListCrashesRequest {
  selector?: string;
  window?: Duration;
  pageSize?: number;
}

export interface ListCrashesResponse {
  groups?: HistoryGroup[];
  nextPageToken?: string;
  totalCount?: Int64;
  notes?: string[];
}

export type ListHangsRequest = ListCrashesRequest;
export type ListHangsResponse = ListCrashesResponse;
