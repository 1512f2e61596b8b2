import { Meter } from '../../parts/meter.tsx'
import { en } from '../../strings/en.ts'
import { bytes, number } from '../../strings/format.ts'
import { type Limit, MEASURED, type Quota, type QuotaName, type Usage } from './tenant-calls.ts'

const texts = en.hosted

/** A limit or a use in its unit. */
export function quotaText(name: QuotaName, value: Limit): string {
  if (value === 'infinity') return texts.unlimited
  if (name === 'bytes' || name === 'document_size') return bytes(value)
  return name === 'requests' ? texts.perSecond(value) : number(value)
}

interface UsageProps {
  readonly usage: Usage
  readonly quota: Quota
}

/** What an account uses of each limit that is measured. */
export function UsageMeters({ usage, quota }: UsageProps) {
  return (
    <ul class="usage">
      {MEASURED.map((name) => (
        <li key={name}>
          <UsageMeter name={name} used={usage[name]} limit={quota[name]} label={texts.quotas[name]} />
        </li>
      ))}
    </ul>
  )
}

interface UsageMeterProps {
  readonly name: (typeof MEASURED)[number]
  readonly used: number
  readonly limit: Limit
  /** Absent: it stands elsewhere. */
  readonly label?: string
}

export function UsageMeter({ name, used, limit, label }: UsageMeterProps) {
  return (
    <div class="usage-meter">
      <p>
        {label !== undefined && <span>{label}</span>}
        <span class="usage-value">
          {quotaText(name, used)} <span class="soft">{texts.of(quotaText(name, limit))}</span>
        </span>
      </p>
      <Meter label={label ?? texts.quotas[name]} value={used} max={limit === 'infinity' ? null : limit} />
    </div>
  )
}
