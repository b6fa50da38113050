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

export interface PlacedEdge extends GraphEdge, Point {
  lines: string[];
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
      { lines, width: widthOf(['', ...lines]) + 8, height: lines.length * LINE_HEIGHT + 6, labelpos: 'c' },
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

// A smooth line through the points of an edge.
export function pathOf(points: Point[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return '';
  let path = `M${first.x},${first.y}`;
  rest.forEach((point, i) => {
    const next = rest[i + 1];
    if (next === undefined) path += `L${point.x},${point.y}`;
    else path += `Q${point.x},${point.y} ${(point.x + next.x) / 2},${(point.y + next.y) / 2}`;
  });
  return path;
}
