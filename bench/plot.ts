/** Draws times at rising rates as an SVG, with logarithmic axes. */
import type { Result } from './report.ts'

const WIDTH = 720
const HEIGHT = 420
const MARGIN = { left: 64, right: 150, top: 24, bottom: 48 }
const COLOURS = ['#1f6feb', '#d1242f', '#1a7f37', '#8250df']

interface Point {
  readonly at: number
  readonly ms: number
}

interface Curve {
  readonly label: string
  readonly colour: string
  readonly isDashed: boolean
  readonly points: readonly Point[]
}

/** @param results of several rates; only times are drawn @returns an SVG document */
export function plotOf(results: readonly Result[]): string {
  const curves = curvesOf(results)
  const points = curves.flatMap((curve) => curve.points)
  const x = logScale(
    points.map(({ at }) => at),
    MARGIN.left,
    WIDTH - MARGIN.right,
  )
  const y = logScale(
    points.map(({ ms }) => ms),
    HEIGHT - MARGIN.bottom,
    MARGIN.top,
  )
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`,
    '<title>Times from the save to three bodies, by edits per second</title>',
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>`,
    ...ticks(points.map(({ ms }) => ms)).map((ms) => horizontalLine(y(ms), `${ms}`)),
    ...[...new Set(points.map(({ at }) => at))].map((at) => verticalLine(x(at), `${at}`)),
    text((MARGIN.left + WIDTH - MARGIN.right) / 2, HEIGHT - 10, 'edits per second', 'middle'),
    `<text transform="translate(16 ${HEIGHT / 2}) rotate(-90)" text-anchor="middle">ms from the save to three bodies</text>`,
    ...curves.flatMap((curve, n) => [line(curve, x, y), ...legend(curve, n)]),
    '</svg>',
    '',
  ].join('\n')
}

function curvesOf(results: readonly Result[]): Curve[] {
  const peers = [...new Set(results.map(({ peer }) => peer))]
  const labels = new Map<string, Point[]>()
  for (const { peer, name, unit, at, value: ms } of results) {
    if (at === undefined || unit !== 'ms') continue
    const label = `${peer}, ${name}`
    labels.set(label, [...(labels.get(label) ?? []), { at, ms }])
  }
  return [...labels].map(([label, points]) => ({
    label,
    colour: COLOURS[peers.findIndex((peer) => label.startsWith(`${peer},`)) % COLOURS.length] as string,
    isDashed: label.endsWith('median'),
    points,
  }))
}

type Scale = (value: number) => number

function logScale(values: readonly number[], start: number, end: number): Scale {
  const [least, most] = [Math.log(Math.min(...values)), Math.log(Math.max(...values))]
  return (value) => {
    const place = start + ((Math.log(value) - least) / (most - least || 1)) * (end - start)
    return Math.round(place * 10) / 10
  }
}

/** 1, 2, 5, 10 and so on, within the values. */
function ticks(values: readonly number[]): number[] {
  const [least, most] = [Math.min(...values), Math.max(...values)]
  const powers = Array.from({ length: 9 }, (_, n) => 10 ** (n - 2))
  return powers
    .flatMap((power) => [power, 2 * power, 5 * power])
    .filter((tick) => tick >= least && tick <= most)
}

function line({ colour, isDashed, points }: Curve, x: Scale, y: Scale): string {
  const corners = points.map(({ at, ms }) => `${x(at)},${y(ms)}`).join(' ')
  return `<polyline points="${corners}" fill="none" stroke="${colour}" stroke-width="2"${dashes(isDashed)}/>`
}

function legend({ label, colour, isDashed }: Curve, n: number): string[] {
  const [left, top] = [WIDTH - MARGIN.right + 12, MARGIN.top + 12 + 20 * n]
  const sample = `<line x1="${left}" x2="${left + 22}" y1="${top - 4}" y2="${top - 4}" stroke="${colour}" stroke-width="2"${dashes(isDashed)}/>`
  return [sample, text(left + 28, top, label, 'start')]
}

function dashes(isDashed: boolean): string {
  return isDashed ? ' stroke-dasharray="5 4"' : ''
}

function horizontalLine(top: number, label: string): string {
  const end = WIDTH - MARGIN.right
  const stroke = `<line x1="${MARGIN.left}" x2="${end}" y1="${top}" y2="${top}" stroke="#ddd"/>`
  return stroke + text(MARGIN.left - 6, top + 4, label, 'end')
}

function verticalLine(left: number, label: string): string {
  const end = HEIGHT - MARGIN.bottom
  const stroke = `<line x1="${left}" x2="${left}" y1="${MARGIN.top}" y2="${end}" stroke="#ddd"/>`
  return stroke + text(left, end + 16, label, 'middle')
}

function text(left: number, top: number, content: string, anchor: 'start' | 'middle' | 'end'): string {
  return `<text x="${left}" y="${top}" text-anchor="${anchor}">${content}</text>`
}
