/** The frame around the screens: navigation, and who is signed in. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { signOut, type User } from '../api/session.ts'
import { Brand } from '../parts/brand.tsx'
import { Button, LinkButton } from '../parts/button.tsx'
import { Icon } from '../parts/icon.tsx'
import { Empty } from '../parts/notice.tsx'
import { Page } from '../parts/page.tsx'
import { say } from '../parts/toast.tsx'
import { en } from '../strings/en.ts'
import { hashOf } from './hash.ts'
import { ErrorBoundary, Lazy } from './lazy.tsx'
import { route } from './route.ts'
import { SCREENS } from './screens.ts'

export function Frame({ user }: { readonly user: User }) {
  const [isOpen, setOpen] = useState(false)
  const content = useRef<HTMLElement>(null)
  const { path, query } = route.value
  const [name = 'overview', ...rest] = path
  const screens = SCREENS.filter((screen) => screen.isVisible())
  const screen = screens.find((each) => each.name === name)
  useFocusOnChange(content, path.join('/'))
  useEffect(() => setOpen(false), [path.join('/')])
  useEscape(isOpen, () => setOpen(false))
  return (
    <div class={isOpen ? 'frame is-open' : 'frame'}>
      <button type="button" class="skip" onClick={() => content.current?.focus()}>
        {en.shell.skip}
      </button>
      <header class="topbar">
        <Button
          kind="quiet"
          icon="menu"
          label={en.shell.menu}
          isExpanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        />
        <Brand href={hashOf(['overview'])} />
      </header>
      <aside class="sidebar" aria-label={en.shell.sidebar}>
        <Brand href={hashOf(['overview'])} />
        <nav aria-label={en.shell.navigation}>
          <ul>
            {screens.map((each) => (
              <li key={each.name}>
                <a
                  class="nav-link"
                  href={hashOf([each.name])}
                  aria-current={each === screen ? 'page' : undefined}
                  onClick={() => setOpen(false)}
                >
                  <Icon name={each.icon} />
                  {en.shell.screens[each.name]}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <Who user={user} />
      </aside>
      {isOpen && (
        <button type="button" class="shade" aria-label={en.common.close} onClick={() => setOpen(false)} />
      )}
      <main class="content" id="content" ref={content} tabIndex={-1}>
        {screen === undefined ? (
          <NotFound />
        ) : (
          <ErrorBoundary key={screen.name}>
            <Lazy load={screen.load} props={{ path: rest, query }} />
          </ErrorBoundary>
        )}
      </main>
    </div>
  )
}

/** After a change of the screen, a screen reader and the keyboard begin at its start. */
function useFocusOnChange(content: { readonly current: HTMLElement | null }, path: string): void {
  const isFirst = useRef(true)
  useEffect(() => {
    if (!isFirst.current) content.current?.focus({ preventScroll: true })
    isFirst.current = false
    content.current?.scrollTo(0, 0)
  }, [path])
}

function useEscape(isOpen: boolean, close: () => void): void {
  useEffect(() => {
    if (!isOpen) return undefined
    const onKey = ({ key }: KeyboardEvent) => {
      if (key === 'Escape') close()
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [isOpen])
}

function Who({ user: { name, isAdmin } }: { readonly user: User }) {
  return (
    <div class="who">
      <Icon name="user" />
      <div class="who-name">
        <strong title={en.shell.signedInAs(name)}>{name}</strong>
        <span>{isAdmin ? en.shell.isAdmin : en.shell.isAccount}</span>
      </div>
      <Button
        kind="quiet"
        icon="leave"
        label={en.shell.signOut}
        onClick={() => void signOut().catch((error: Error) => say(error.message))}
      />
    </div>
  )
}

function NotFound() {
  return (
    <Page title={en.shell.notFound}>
      <Empty
        title={en.shell.notFound}
        action={<LinkButton href={hashOf(['overview'])}>{en.shell.toOverview}</LinkButton>}
      >
        {en.shell.notFoundHelp}
      </Empty>
    </Page>
  )
}
