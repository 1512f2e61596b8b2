import type { ComponentChildren } from 'preact'
import type { Failure } from '../api/failure.ts'
import { en } from '../strings/en.ts'
import { Button } from './button.tsx'
import { Icon, type IconName } from './icon.tsx'

export type Tone = 'good' | 'info' | 'warn' | 'bad' | 'plain'

const ICONS: Readonly<Record<Tone, IconName>> = {
  good: 'check',
  info: 'info',
  warn: 'warning',
  bad: 'error',
  plain: 'info',
}

interface NoticeProps {
  readonly tone: Tone
  readonly title?: ComponentChildren
  readonly children?: ComponentChildren
  readonly actions?: ComponentChildren
  /** Whether screen readers announce it when it appears. */
  readonly isAnnounced?: boolean
}

/** A message in the page, with an icon that does not depend on colour alone. */
export function Notice({ tone, title, children, actions, isAnnounced = false }: NoticeProps) {
  return (
    <div class={`notice is-${tone}`} role={isAnnounced ? (tone === 'bad' ? 'alert' : 'status') : undefined}>
      <Icon name={ICONS[tone]} />
      <div class="notice-body">
        {title !== undefined && <strong class="notice-title">{title}</strong>}
        {children}
        {actions !== undefined && <div class="actions">{actions}</div>}
      </div>
    </div>
  )
}

interface ErrorNoticeProps {
  readonly failure: Failure
  /** What could not be done, such as "The database was not created." */
  readonly title?: string
  readonly onRetry?: () => void
}

/** A failed call: the server's reason, and the id by which its log can be searched. */
export function ErrorNotice({ failure, title, onRetry }: ErrorNoticeProps) {
  const actions = onRetry && (
    <Button isSmall icon="reload" onClick={onRetry}>
      {en.common.tryAgain}
    </Button>
  )
  return (
    <Notice tone="bad" title={title ?? en.common.failed} isAnnounced {...(actions && { actions })}>
      <p class="reason">{failure.message}</p>
      {failure.requestId !== null && (
        <p class="fine">
          {failure.status} {failure.code} · {en.common.requestId} <code>{failure.requestId}</code>
        </p>
      )}
    </Notice>
  )
}

interface EmptyProps {
  readonly title: string
  /** What to do next. */
  readonly children?: ComponentChildren
  readonly action?: ComponentChildren
  readonly icon?: IconName
}

/** What stands where there is nothing yet. */
export function Empty({ title, children, action, icon = 'info' }: EmptyProps) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <p class="empty-title">{title}</p>
      {children !== undefined && <p>{children}</p>}
      {action !== undefined && <div class="actions">{action}</div>}
    </div>
  )
}

/** Stands in for text that is being loaded. @param lines how much room it takes */
export function Skeleton({ lines = 3 }: { readonly lines?: number }) {
  return (
    <div class="skeleton" aria-hidden="true">
      {Array.from({ length: lines }, (_, line) => (
        <span key={line} />
      ))}
    </div>
  )
}

export function Badge({
  tone = 'plain',
  children,
}: {
  readonly tone?: Tone
  readonly children: ComponentChildren
}) {
  return <span class={`badge is-${tone}`}>{children}</span>
}
