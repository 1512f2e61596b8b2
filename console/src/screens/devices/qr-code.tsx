import { encode } from 'uqr'

/** The width of the empty border in modules, which cameras need; ISO 18004. */
const BORDER = 4

interface QrCodeProps {
  readonly text: string
  /** Read to screen readers. */
  readonly label: string
}

/** Dark on white in any colour scheme, because not all cameras read an inverted code. */
export default function QrCode({ text, label }: QrCodeProps) {
  const { data, size } = encode(text, { ecc: 'L', border: BORDER })
  return (
    <svg
      class="qr"
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label={label}
      shape-rendering="crispEdges"
    >
      <rect width={size} height={size} />
      <path d={pathOf(data)} />
    </svg>
  )
}

/** Each row's dark modules, as runs of one module's height. */
function pathOf(rows: readonly (readonly boolean[])[]): string {
  const runs: string[] = []
  for (const [y, row] of rows.entries()) {
    for (let x = 0; x < row.length; x++) {
      const from = x
      while (row[x] === true) x++
      if (x > from) runs.push(`M${from} ${y}h${x - from}v1h-${x - from}z`)
    }
  }
  return runs.join('')
}
