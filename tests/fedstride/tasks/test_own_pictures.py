"""Images of other sizes and pixels, DICOM and NIfTI: one form for the task, or all faults in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pytest
from own_files import class_folder, refused, wav, written
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.dictionary_file import read_examples
from fedstride.tasks.data_toml.site import read_site
from fedstride.tasks.datasets.nodes import own_images
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.own_files.node_process import checked
from fedstride.tasks.own_files.readers.images import DEEP
from fedstride.tasks.own_files.unlabelled import read as to_predict
from fedstride.tasks.reading import Reading
from fedstride.tasks.spec import Spec

SECRET = "Mustermann^Erika"


@pytest.fixture(autouse=True)
def _fresh(own_cache: Path) -> None:
    """Every test has its own empty cache."""


def task(shape: tuple[int, ...] = (1, 6, 8), **settings: Any) -> Spec:
    return own_images(classes=["no", "yes"], shape=list(shape), **settings).spec


def folder(root: Path) -> Path:
    for name in ("no", "yes"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return root


def pixels_of(file: Path, spec: Spec) -> np.ndarray:
    return to_predict(file, spec).x[0]


# ---------------------------------------------------------------- sizes


def test_sizes_become_the_tasks(tmp_path: Path) -> None:
    """A bright left half stays one, whatever the size is."""
    for name, (height, width) in {"no/a": (6, 8), "no/b": (60, 80), "yes/c": (3, 4), "yes/d": (30, 41)}.items():
        image = np.zeros((height, width), np.uint8)
        image[:, : width // 2] = 200
        folder(tmp_path / "data")
        Image.fromarray(image).save(tmp_path / f"data/{name}.png")
    found = own_files.load(tmp_path / "data", task(resize="stretch"))
    assert found.x.shape == (4, 1, 6, 8) and found.y.tolist() == [0, 0, 1, 1]
    assert (found.x[:, 0, :, 0] == 200).all() and (found.x[:, 0, :, -1] == 0).all()
    alone = np.asarray(Image.open(tmp_path / "data/no/a.png"))
    np.testing.assert_array_equal(found.x[0, 0], alone)  # nothing changes an image of the right size
    assert own_files.load(tmp_path / "data", task(resize="stretch")).content == found.content


@pytest.mark.parametrize(("how", "corner", "middle"), [("stretch", 90, 90), ("crop", 90, 90), ("pad", 0, 90)])
def test_shapes_are_stretched_cut_or_filled(tmp_path: Path, how: str, corner: int, middle: int) -> None:
    Image.fromarray(np.full((40, 10), 90, np.uint8)).save(tmp_path / "one.png")
    found = pixels_of(tmp_path / "one.png", task(resize=how))
    assert (found[0, 0, 0], found[0, 3, 4]) == (corner, middle)


def test_a_camera_s_image_is_turned_before_it_is_resized(tmp_path: Path) -> None:
    image = Image.fromarray(np.repeat(np.arange(0, 240, 3, np.uint8)[None], 60, axis=0))
    exif = image.getexif()
    exif[0x0112] = 3
    image.save(tmp_path / "one.png", exif=exif)
    found = pixels_of(tmp_path / "one.png", task(resize="stretch"))[0]
    assert (np.diff(found[0].astype(int)) < 0).all()


# ---------------------------------------------------------------- pixels


def test_every_mode_becomes_the_tasks(tmp_path: Path) -> None:
    """A red left half and a white right one, in every mode that can say it."""
    colour = Image.new("RGB", (8, 6), (255, 255, 255))
    colour.paste((255, 0, 0), (0, 0, 4, 6))
    modes = {
        "RGB": colour,
        "P": colour.quantize(2),
        "CMYK": colour.convert("CMYK"),
        "RGBA": colour.convert("RGBA"),
    }
    for mode, image in modes.items():
        suffix = "jpg" if mode == "CMYK" else "png"
        image.save(tmp_path / f"{mode}.{suffix}", **({"quality": 100} if mode == "CMYK" else {}))
        found = pixels_of(tmp_path / f"{mode}.{suffix}", task((3, 6, 8), convert=True)).astype(int)
        assert np.abs(found[:, 0, 0] - [255, 0, 0]).max() <= 25, mode
        assert np.abs(found[:, 0, 7] - 255).max() <= 3, mode
        grey = pixels_of(tmp_path / f"{mode}.{suffix}", task(convert=True)).astype(int)
        assert abs(grey[0, 0, 0] - 76) <= 12 and abs(grey[0, 0, 7] - 255) <= 3, mode


def test_grey_and_black_and_white_become_colours(tmp_path: Path) -> None:
    for mode, value in (("L", 130), ("1", 255), ("LA", 130)):
        image = Image.new("L", (8, 6), value).convert(mode)
        image.save(tmp_path / f"{mode}.png")
        found = pixels_of(tmp_path / f"{mode}.png", task((3, 6, 8), convert=True))
        assert (found == value).all(), mode


def test_what_is_transparent_is_black(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (8, 6), (200, 100, 50, 0))
    clear.paste((200, 100, 50, 255), (0, 0, 4, 6))
    clear.save(tmp_path / "a.png")
    palette = Image.new("P", (8, 6), 1)
    palette.putpalette([200, 100, 50, 9, 9, 9])
    palette.paste(0, (0, 0, 4, 6))
    palette.save(tmp_path / "b.png", transparency=1)
    for name in ("a.png", "b.png"):
        found = pixels_of(tmp_path / name, task((3, 6, 8), convert=True))
        assert found[:, 0, 0].tolist() == [200, 100, 50] and found[:, 0, 7].tolist() == [0, 0, 0]


@pytest.mark.parametrize("mode", ["P", "L", "RGB", "1"])
def test_what_is_transparent_is_refused_without_conversion(tmp_path: Path, mode: str) -> None:
    """Otherwise the colours that nobody sees would be read."""
    image = Image.new("RGB", (8, 6), (204, 204, 204)).convert(mode)
    shape = (1, 6, 8) if mode in ("L", "1") else (3, 6, 8)
    image.save(tmp_path / "plain.png")
    assert pixels_of(tmp_path / "plain.png", task(shape)).shape == shape
    clear = image.getpixel((0, 0))
    image.save(tmp_path / "clear.png", transparency=clear)
    with pytest.raises(DataError, match=rf"mode {mode} with transparency, but this task needs 8x6 and mode"):
        pixels_of(tmp_path / "clear.png", task(shape))
    assert (pixels_of(tmp_path / "clear.png", task(shape, convert=True)) == 0).all()


def test_sixteen_bits_keep_what_the_window_says(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 48).reshape(6, 8).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert Image.open(tmp_path / "deep.png").mode in DEEP
    found = pixels_of(tmp_path / "deep.png", task(convert=True))
    np.testing.assert_array_equal(found[0], np.rint(values / 65535 * 255))
    found = pixels_of(tmp_path / "deep.png", task(convert=True, window=[1000, 4095]))
    np.testing.assert_array_equal(found[0], np.rint(((values - 1000.0) / 3095).clip(0, 1) * 255))
    colours = pixels_of(tmp_path / "deep.png", task((3, 12, 4), convert=True, resize="stretch"))
    assert colours.shape == (3, 12, 4) and (colours[0] == colours[2]).all()


@pytest.mark.parametrize("window", [[5], [3.0, 3.0], [9, 1], [0, 1, 2]])
def test_windows_that_are_refused(window: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"task.window = .* two numbers, the lower one first"):
        task(window=window)


def test_a_message_says_the_rule() -> None:
    spec = task(resize="crop", convert=True, window=[-160, 240])
    assert Spec.unflatten(spec.flatten()) == spec
    assert spec.reading == Reading(resize="crop", convert=True, lowest=-160.0, highest=240.0)
    assert not any(key.startswith("reading.") for key in task().flatten())
    with pytest.raises(ConfigError, match="resize = 'zoom' is not allowed"):
        Spec.unflatten({**spec.flatten(), "reading.resize": "zoom"})


# ---------------------------------------------------------------- faults


def test_all_faults_of_a_folder_are_in_one_line(tmp_path: Path) -> None:
    data = class_folder(tmp_path / "data", {"no": 3, "yes": 4}, (1, 6, 8))
    Image.new("L", (9, 9)).save(data / "no/0.png")
    Image.new("L", (70, 70)).save(data / "yes/1.png")
    Image.new("RGBA", (8, 6)).save(data / "yes/2.png")
    whole = (data / "yes/3.png").read_bytes()
    written(data / "yes/3.png", whole[: len(whole) * 2 // 3])
    text = refused(data, task())
    do_so = "convert it, or let the task do so"
    assert text == (
        f"{data}: 4 of 7 files cannot be used: 2 with another size (no/0.png, yes/1.png): {do_so} (task.resize); "
        f"1 with another mode (yes/2.png): {do_so} (task.convert); 1 with no readable image (yes/3.png): "
        "get it again"
    )
    again = refused(data, task(resize="pad", convert=True))
    assert f"{data / 'yes/3.png'} is not a readable image" in again and " of 7 files" not in again


def test_many_names_are_cut(tmp_path: Path) -> None:
    data = class_folder(tmp_path / "data", {"no": 30, "yes": 30}, (1, 4, 4))
    assert "60 of 60 files cannot be used: 60 with another size (no/0.png, no/1.png, no/10.png, ...)" in refused(
        data, task()
    )


def test_files_of_other_names_are_counted_too(tmp_path: Path) -> None:
    data = class_folder(tmp_path / "data", {"no": 2, "yes": 2}, (1, 6, 8))
    for name in ("no/notes.docx", "yes/Thumbs.db", "yes/scan.tiff"):
        written(data / name, "?")
    text = refused(data, task())
    assert "3 of 7 files cannot be used: 3 with other names (no/notes.docx, yes/" in text
    assert text.endswith("): move it out of the folder")
    for name in ("no/notes.docx", "yes/Thumbs.db"):
        (data / name).unlink()
    assert "must be a file whose name ends with .png, .jpg, .jpeg, .dcm, .nii, .nii.gz; move it" in refused(
        data, task()
    )


def test_other_names_do_not_hide_what_is_wrong_with_images(tmp_path: Path) -> None:
    """Whatever order the names have: all faults are said at once."""
    data = class_folder(tmp_path / "data", {"no": 2, "yes": 2}, (1, 6, 8))
    for name in ("no/Thumbs.db", "yes/readme.txt", "no/a.png", "yes/zz.PNG"):
        written(data / name, "text")
    Image.new("CMYK", (8, 6)).save(data / "no/z.jpg")
    (data / "yes/more.png").mkdir()
    text = refused(data, task())
    assert "6 of 10 files cannot be used: 3 with other names (no/Thumbs.db, yes/more.png, yes/readme.txt)" in text
    assert (
        "yes/readme.txt): move it out of the folder; 2 with no readable image (no/a.png, yes/zz.PNG): get" in text
    )
    assert "get it again; 1 with another mode (no/z.jpg): convert it, or let the task do so (task.convert)" in text


def test_recordings_too(tmp_path: Path) -> None:
    spec = Spec(Inputs(Kind.SIGNAL, (1, 6)), 2, scale=32_768.0, reading=Reading(rate=8000))
    for number, rate in enumerate((8000, 7999, 44100)):
        wav(tmp_path / f"data/no/{number}.wav", [1, 2, 3], rate)
    (tmp_path / "data/yes").mkdir()
    assert "2 of 3 files cannot be used: 2 with other faults (no/1.wav, no/2.wav): the first: " in refused(
        tmp_path / "data", spec
    )


# ---------------------------------------------------------------- a site's data file


def test_a_site_says_that_its_files_are_of_any_form(tmp_path: Path) -> None:
    folder(tmp_path / "scans")
    Image.new("RGBA", (33, 17)).save(tmp_path / "scans/no/a.png")
    said = (
        'path = "scans"\nsplit_seed = 0\n[examples]\nkind = "image"\nshape = [1, 6, 8]\nclasses = ["no", "yes"]\n'
    )
    strict = checked({"check": read_site(written(tmp_path / "strict.toml", said)).plain()})
    assert "another size" not in strict["faults"][0] and "has size 33x17 and mode RGBA" in strict["faults"][0]
    free = read_site(written(tmp_path / "free.toml", said + "any_form = true\n"))
    assert checked({"check": free.plain()}) == {"rows": 1, "faults": []}
    assert own_files.load(tmp_path / "free.toml", task(resize="pad", convert=True)).x.shape == (1, 1, 6, 8)
    with pytest.raises(ConfigError, match=r"spec\.shape"):
        own_files.load(tmp_path / "free.toml", task((1, 8, 8), resize="pad", convert=True))


@pytest.mark.parametrize("said", [{"any_form": 3}, {"any_form": True, "kind": "tokens"}])
def test_what_a_data_file_cannot_say_of_images(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="any_form"):
        read_examples({"kind": "image", "shape": [1, 6, 8], "classes": 2, **said})


# ---------------------------------------------------------------- DICOM


def dicom(path: Path, pixels: np.ndarray, **more: Any) -> Path:
    """A file with a patient in it; `pixels` (height, width), with frames before it or colours behind it."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = meta.MediaStorageSOPInstanceUID = generate_uid()
    found = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    found.PatientName, found.PatientID, found.PatientBirthDate = SECRET, "4711", "19560412"
    colour = more.get("PhotometricInterpretation", "").startswith(("RGB", "YBR"))
    frames = pixels.ndim - 2 * (not colour) - 3 * colour
    found.Rows, found.Columns = pixels.shape[frames : frames + 2]
    if frames:
        found.NumberOfFrames = len(pixels)
    found.SamplesPerPixel, found.PixelRepresentation = (3 if colour else 1), int(pixels.dtype.kind == "i")
    if colour:
        found.PlanarConfiguration = 0
    found.BitsAllocated = found.BitsStored = pixels.dtype.itemsize * 8
    found.HighBit, found.PhotometricInterpretation = found.BitsStored - 1, "MONOCHROME2"
    found.PixelData = pixels.tobytes()
    for name, value in more.items():
        setattr(found, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    found.save_as(path, enforce_file_format=True)
    return path


HOUNSFIELD = {"window": [-160.0, 240.0]}


def shown(values: np.ndarray, low: float = -160.0, high: float = 240.0) -> np.ndarray:
    return np.rint(((values - low) / (high - low)).clip(0, 1) * 255)


def test_a_slice_of_ct(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).integers(0, 2500, (6, 8)).astype(np.uint16)
    file = dicom(
        tmp_path / "a.dcm", stored, RescaleSlope=1.0, RescaleIntercept=-1024.0, WindowCenter=7, WindowWidth=9
    )
    found = pixels_of(file, task(**HOUNSFIELD))
    np.testing.assert_array_equal(found[0], shown(stored - 1024.0))  # and not the window of the file
    inverted = dicom(tmp_path / "b.dcm", stored.astype(np.int16), PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_array_equal(pixels_of(inverted, task(**HOUNSFIELD))[0], 255 - shown(stored))


def test_sizes_and_colours_of_dicom(tmp_path: Path) -> None:
    flat = dicom(tmp_path / "a.dcm", np.full((60, 80), 240, np.int16))
    assert (pixels_of(flat, task((3, 6, 8), convert=True, resize="pad", **HOUNSFIELD)) == 255).all()
    colours = np.zeros((6, 8, 3), np.uint8)
    colours[..., 0] = 250
    echo = dicom(tmp_path / "b.dcm", colours, PhotometricInterpretation="RGB")
    assert pixels_of(echo, task((3, 6, 8)))[:, 0, 0].tolist() == [250, 0, 0]
    assert (pixels_of(echo, task(convert=True)) == 75).all()


@pytest.mark.parametrize(("stored", "expected"), [(16, [0, 128, 255]), (12, [15, 0, 255])])
def test_colours_of_sixteen_bits_keep_the_upper_eight(tmp_path: Path, stored: int, expected: list[int]) -> None:
    colours = np.full((6, 8, 3), [255, 32768 if stored == 16 else 7, 2**stored - 1], np.uint16)
    file = dicom(
        tmp_path / "a.dcm", colours, PhotometricInterpretation="RGB", BitsStored=stored, HighBit=stored - 1
    )
    assert pixels_of(file, task((3, 6, 8)))[:, 0, 0].tolist() == expected


def test_frames_become_channels(tmp_path: Path) -> None:
    frames = np.repeat(np.arange(10, dtype=np.int16) * 20, 48).reshape(10, 6, 8)
    file = dicom(tmp_path / "a.dcm", frames)
    spec = task((4, 6, 8), window=[0, 255])
    assert pixels_of(file, spec)[:, 0, 0].tolist() == [20, 60, 120, 160]  # slices 1, 3, 6, 8
    assert pixels_of(file, task(window=[0, 255]))[0, 0, 0] == 100
    assert "has 10 slices, but the task has 11 channels" in refused_file(file, task((11, 6, 8), window=[0, 255]))


def refused_file(file: Path, spec: Spec) -> str:
    from fedstride.errors import DataError

    with pytest.raises(DataError) as caught:
        to_predict(file, spec)
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


def test_nothing_of_a_patient_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reader gets from the library has the elements of pixels, and no others."""
    seen: list[str] = []
    real = pydicom.dcmread

    def watched(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        seen.extend(each.keyword for each in found)
        return found

    monkeypatch.setattr(pydicom, "dcmread", watched)
    data = folder(tmp_path / "data")
    for name in ("no/a", "yes/b", "yes/c"):
        dicom(data / f"{name}.dcm", np.zeros((6, 8), np.int16))
    found = own_files.load(data, task(**HOUNSFIELD))
    assert found.x.shape == (3, 1, 6, 8) and "Rows" in seen and not [each for each in seen if "Patient" in each]


def test_dicom_that_is_refused(tmp_path: Path) -> None:
    good = dicom(tmp_path / "a.dcm", np.zeros((6, 8), np.int16))
    assert "say in task.window which of them become black and white" in refused_file(good, task())
    assert "has size 8x6 and mode L, but this task needs 9x9" in refused_file(good, task((1, 9, 9), **HOUNSFIELD))
    cut = written(tmp_path / "cut.dcm", good.read_bytes()[:-50])
    assert "is not a readable DICOM file (" in refused_file(cut, task(**HOUNSFIELD))
    assert "is not a readable DICOM file (" in refused_file(
        written(tmp_path / "x.dcm", SECRET), task(**HOUNSFIELD)
    )
    squeezed = dicom(tmp_path / "j.dcm", np.zeros((6, 8), np.int16))
    found = pydicom.dcmread(squeezed)
    found.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.4.90"
    found.PixelData = pydicom.encaps.encapsulate([b"\xff\x4f" + SECRET.encode()])
    found["PixelData"].is_undefined_length = True
    found.save_as(squeezed)
    assert "get it again, or write it without compression" in refused_file(squeezed, task(**HOUNSFIELD))


# ---------------------------------------------------------------- NIfTI


def test_slices_of_a_volume_in_any_orientation(tmp_path: Path) -> None:
    """A mark at the front left of one slice is at the top left, however the scanner stored the axes."""
    volume = np.zeros((8, 6, 5), np.int16)
    volume[0, 5, 2] = (
        255  # left (x = 0 where x grows to the right), front (y grows to the front), the middle slice
    )
    plain = nibabel.Nifti1Image(volume, np.eye(4))
    turned = nibabel.Nifti1Image(volume[::-1, :, ::-1], np.diag([-1.0, 1.0, -1.0, 1.0]))
    swapped = nibabel.Nifti1Image(np.transpose(volume, (2, 0, 1)), np.eye(4)[[1, 2, 0, 3]])
    for name, image in {"a.nii": plain, "b.nii.gz": turned, "c.nii": swapped}.items():
        nibabel.save(image, tmp_path / name)
        found = pixels_of(tmp_path / name, task(window=[0, 255]))
        assert found[0, 0, 0] == 255 and found.sum() == 255, name


def test_the_scale_of_a_volume_and_its_slices(tmp_path: Path) -> None:
    volume = np.broadcast_to(np.arange(9.0) * 2 - 4, (20, 30, 9))
    image = nibabel.Nifti1Image(volume, np.eye(4))
    image.set_data_dtype(np.int16)
    nibabel.save(image, tmp_path / "a.nii.gz")
    found = pixels_of(tmp_path / "a.nii.gz", task((3, 6, 8), resize="crop", window=[-4, 12]))
    np.testing.assert_array_equal(found[:, 3, 3], shown(np.array([-2.0, 4.0, 10.0]), -4, 12))


def test_a_class_folder_of_volumes_and_images(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    nibabel.save(nibabel.Nifti1Image(np.full((8, 6, 3), 9.0), np.eye(4)), data / "no/a.nii.gz")
    dicom(data / "yes/b.dcm", np.full((6, 8), 9, np.int16))
    Image.new("L", (8, 6), 9).save(data / "yes/c.png")
    found = own_files.load(data, task(window=[0, 255]))
    assert (found.x == 9).all() and found.y.tolist() == [0, 1, 1]


def test_volumes_that_are_refused(tmp_path: Path) -> None:
    nibabel.save(nibabel.Nifti1Image(np.zeros((8, 6, 3, 4)), np.eye(4)), tmp_path / "a.nii")
    assert "is not a readable NIfTI file (ValueError)" in refused_file(tmp_path / "a.nii", task(window=[0, 1]))
    whole = (tmp_path / "a.nii").read_bytes()
    for name, content in {"b.nii": whole[:400], "c.nii.gz": whole, "d.nii": b""}.items():
        text = refused_file(written(tmp_path / name, content), task(window=[0, 1]))
        assert "is not a readable NIfTI file (" in text
    data = folder(tmp_path / "data")
    for name in ("no/a.nii", "yes/b.nii"):
        written(data / name, whole[:500])
    written(data / "yes/c.dcm", b"?")
    text = refused(data, task(window=[0, 1]))
    assert "2 with no readable NIfTI (no/a.nii, yes/b.nii): get it again, or write it" in text
    assert "; 1 with no readable DICOM (yes/c.dcm): get it again" in text


def test_without_the_libraries_the_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (("pydicom", "a.dcm"), ("nibabel", "b.nii")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        text = refused_file(written(tmp_path / name, "?"), task(window=[0, 1]))
        assert f"needs the package {module}; pip install 'fedstride[medical]'" in text


def test_another_scale_of_the_task(tmp_path: Path) -> None:
    file = dicom(tmp_path / "a.dcm", np.full((6, 8), 240, np.int16))
    assert (pixels_of(file, replace(task(**HOUNSFIELD), scale=1.0)) == 1.0).all()
