import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { en } from '../strings/en.ts'
import { Icon } from './icon.tsx'

interface PageProps {
  readonly title: string
  readonly lead?: ComponentChildren
  /** Buttons beside the title, the main one last. */
  readonly actions?: ComponentChildren
  /** Where the arrow before the title leads. */
  readonly back?: { readonly href: string; readonly label: string }
  /** Between the title and the content, such as tabs. */
  readonly tabs?: ComponentChildren
  /** Whether the content fills the window's height, and scrolls inside itself. */
  readonly isFull?: boolean
  readonly children: ComponentChildren
}

/** A screen: its title, which is also the window's, and its content. */
export function Page({ title, lead, actions, back, tabs, isFull = false, children }: PageProps) {
  useEffect(() => {
    document.title = en.shell.windowTitle(title)
  }, [title])
  return (
    <div class={isFull ? 'page is-full' : 'page'}>
      <header class="page-head">
        <div class="page-title">
          {back && (
            <a class="button is-quiet" href={back.href} aria-label={back.label} title={back.label}>
              <Icon name="back" />
            </a>
          )}
          <h1 tabIndex={-1}>{title}</h1>
          {actions !== undefined && <div class="actions">{actions}</div>}
        </div>
        {lead !== undefined && <p class="lead">{lead}</p>}
        {tabs}
      </header>
      {children}
    </div>
  )
}

interface CardProps {
  readonly title?: ComponentChildren
  readonly lead?: ComponentChildren
  readonly actions?: ComponentChildren
  /** Whether its content reaches the border, as tables do. */
  readonly isFlush?: boolean
  readonly children: ComponentChildren
}

/** A part of a screen. */
export function Card({ title, lead, actions, isFlush = false, children }: CardProps) {
  return (
    <section class={isFlush ? 'card is-flush' : 'card'}>
      {(title !== undefined || actions !== undefined) && (
        <header class="card-head">
          {title !== undefined && <h2>{title}</h2>}
          {actions !== undefined && <div class="actions">{actions}</div>}
        </header>
      )}
      {lead !== undefined && <p class="card-lead">{lead}</p>}
      <div class="card-body">{children}</div>
    </section>
  )
}

export interface Tab {
  readonly href: string
  readonly text: string
  readonly isOn: boolean
  /** Beside the text, such as a number. */
  readonly note?: ComponentChildren
}

/** Links to the parts of a screen. */
export function Tabs({ label, tabs }: { readonly label: string; readonly tabs: readonly Tab[] }) {
  const nav = useRef<HTMLElement>(null)
  const shown = tabs.find(({ isOn }) => isOn)?.href
  useEffect(() => {
    // On a phone the tabs scroll sideways.
    nav.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }, [shown])
  return (
    <nav class="tabs" ref={nav} aria-label={label}>
      <ul>
        {tabs.map(({ href, text, isOn, note }) => (
          <li key={href}>
            <a href={href} aria-current={isOn ? 'page' : undefined}>
              {text}
              {note !== undefined && <span class="tab-note">{note}</span>}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  )
}

export interface Fact {
  readonly term: ComponentChildren
  readonly value: ComponentChildren
}

/** Terms and values in a list. */
export function Facts({ facts }: { readonly facts: readonly Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(({ term, value }, at) => (
        // The facts of a list keep their places.
        <div key={at}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}
