import { percent } from '../strings/format.ts'

interface MeterProps {
  /** Read to screen readers. */
  readonly label: string
  readonly value: number
  /** null: there is no limit. */
  readonly max: number | null
  /** The shares of the limit from which it warns. */
  readonly warnAt?: number
}

/** How much of a limit is used. */
export function Meter({ label, value, max, warnAt = 0.8 }: MeterProps) {
  const share = max === null || max === 0 ? (max === 0 && value > 0 ? 1 : 0) : Math.min(1, value / max)
  const tone = share >= 1 ? 'bad' : share >= warnAt ? 'warn' : 'good'
  return (
    // biome-ignore lint/a11y/useSemanticElements: browsers draw a <meter> in ways that styles cannot change
    <div
      class={`meter is-${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
      aria-valuetext={percent(share)}
    >
      <span style={{ inlineSize: `${share * 100}%` }} />
    </div>
  )
}
