/** What pages say while something has failed. */

/** Each page says its sentences. A folder: there is a picture of each that has a name for it, for the documentation. */
export async function said(ui, { pages, folder }) {
  for (const { path, says, picture } of pages) {
    await ui.goto(path);
    const main = ui.page.getByRole("main");
    for (const text of says) await main.getByText(new RegExp(text)).first().waitFor();
    if (!folder) await ui.isAccessible(`${path} of an incident`);
    await ui.picture(picture ?? path.replaceAll("/", "-"));
    if (folder && picture) await ui.documented(`${folder}/${picture}.png`);
  }
}
