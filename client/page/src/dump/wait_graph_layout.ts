// Where nodes, edges and their labels stand: a layered layout by dagre.
import { Graph, layout } from '@dagrejs/dagre';
import { label } from '../text/printable';
import type { GraphEdge, GraphNode, WaitGraph } from './wait_graph';

export interface Point {
  x: number;
  y: number;
}

export interface PlacedNode extends GraphNode, Point {
  lines: string[];
  width: number;
  height: number;
}

// Its own point is the middle of its label.
export interface PlacedEdge extends GraphEdge, Point {
  lines: string[];
  width: number;
  points: Point[];
}

export interface Placed {
  nodes: PlacedNode[];
  edges: PlacedEdge[];
  width: number;
  height: number;
}

// Sizes of the monospaced font of 12 px in which the picture is written.
const CHARACTER_WIDTH = 7.25;
const LINE_HEIGHT = 15;
const MAX_CHARACTERS = 44;

function widthOf(lines: string[]): number {
  return Math.max(...lines.map((line) => line.length)) * CHARACTER_WIDTH;
}

function linesOf(...texts: string[]): string[] {
  return texts.filter((text) => text !== '').map((text) => label(text, MAX_CHARACTERS));
}

export function placed(graph: WaitGraph): Placed {
  const layered = new Graph({ multigraph: true });
  layered.setGraph({ rankdir: 'LR', nodesep: 26, ranksep: 40, edgesep: 18, marginx: 12, marginy: 12 });
  layered.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) {
    const lines = linesOf(node.title, node.subtitle);
    layered.setNode(node.id, { lines, width: widthOf(lines) + 24, height: lines.length * LINE_HEIGHT + 14 });
  }
  graph.edges.forEach((edge, i) => {
    const lines = linesOf(edge.lock, edge.where);
    layered.setEdge(
      edge.from,
      edge.to,
      { lines, width: widthOf(['', ...lines]) + 8, height: 40, labelpos: 'c' },
      String(i),
    );
  });
  layout(layered);
  const { width = 0, height = 0 } = layered.graph() as { width?: number; height?: number };
  return {
    nodes: graph.nodes.map((node) => ({ ...node, ...(layered.node(node.id) as object) }) as PlacedNode),
    edges: graph.edges.map(
      (edge, i) => ({ ...edge, ...(layered.edge(edge.from, edge.to, String(i)) as object) }) as PlacedEdge,
    ),
    width,
    height,
  };
}

// The points of an edge, with the one of its label drawn out to a level line as long as the label.
function withLevelLabel(edge: PlacedEdge): Point[] {
  const { points, x, y, width } = edge;
  const first = points[0]?.x ?? 0;
  const half = (width / 2) * Math.sign((points.at(-1)?.x ?? 0) - first);
  if (half === 0) return points;
  const isBefore = (point: Point) => (point.x - x) * half < -half * half;
  const isBehind = (point: Point) => (point.x - x) * half > half * half;
  return [...points.filter(isBefore), { x: x - half, y }, { x: x + half, y }, ...points.filter(isBehind)];
}

// A line through the points of an edge, level at each of them.
export function pathOf(edge: PlacedEdge): string {
  const [first, ...rest] = withLevelLabel(edge);
  if (first === undefined) return '';
  let path = `M${first.x},${first.y}`;
  let last = first;
  for (const point of rest) {
    const middle = (last.x + point.x) / 2;
    path += `C${middle},${last.y} ${middle},${point.y} ${point.x},${point.y}`;
    last = point;
  }
  return path;
}
