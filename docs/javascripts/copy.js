// The button of a console block copies what one types: no prompts and no output.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("[data-clipboard-target]")
    const code = button && document.querySelector(button.dataset.clipboardTarget)
    if (!code?.querySelector(".gp")) return
    const typed = code.cloneNode(true)
    typed.querySelectorAll(".gp, .go").forEach((element) => element.remove())
    button.dataset.clipboardText = typed.textContent.split("\n").filter((line) => line.trim()).join("\n")
  },
  true // before the theme's own listener
)
